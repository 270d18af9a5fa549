#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>

#include "brgemm_pack.h"
#include "libraries.h"
#include "processor.h"

namespace zt {

namespace {

// The library makes a microkernel for each shape, and keeps it. So the steps of a block are a multiple of kDepthStep, which
// bounds the number of shapes if the number of rows varies.
constexpr int64_t kTileRows = 64, kTileColumns = 64;  // of a tile of the result
constexpr int64_t kBlockDepth = 512;                  // most steps per block
constexpr int64_t kDepthStep = 64;

int64_t padded_depth(int64_t depth) {
  return (depth + kDepthStep - 1) / kDepthStep * kDepthStep;
}

OperandLines<brgemm::Bits> row_lines(const at::Tensor& a) {
  const BlasLayout layout = blas_layout(a);
  const auto* data = static_cast<const brgemm::Bits*>(a.const_data_ptr());
  return layout.transposed ? OperandLines<brgemm::Bits>{data, 1, layout.ld} : OperandLines<brgemm::Bits>{data, layout.ld, 1};
}

OperandLines<brgemm::Bits> column_lines(const at::Tensor& b) {
  const BlasLayout layout = blas_layout(b);
  const auto* data = static_cast<const brgemm::Bits*>(b.const_data_ptr());
  return layout.transposed ? OperandLines<brgemm::Bits>{data, layout.ld, 1} : OperandLines<brgemm::Bits>{data, 1, layout.ld};
}

// c += a b, or c = a b. c is fp32.
class BrgemmCall {
 public:
  BrgemmCall(Isa isa, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool adds)
      : isa_(isa),
        a_(row_lines(a)),
        b_(column_lines(b)),
        m_(c.size(0)),
        n_(c.size(1)),
        k_(a.size(1)),
        c_(c.mutable_data_ptr<float>()),
        c_row_(blas_layout(c).ld),
        adds_(adds),
        right_(at::empty({n_ * std::min(kBlockDepth, padded_depth(k_))}, at::kBFloat16)) {}

  void run() {
    for (int64_t p = 0; p < k_; p += kBlockDepth) {
      const int64_t depth = std::min(kBlockDepth, k_ - p);
      const bool adds = adds_ || p > 0;
      in_parallel(n_, kTileColumns, [&](int64_t j) { pack_columns(j, p, depth); });
      in_parallel(m_, kTileRows, [&](int64_t i) { multiply_rows(i, p, depth, adds); });
    }
  }

 private:
  template <class Call>
  static void in_parallel(int64_t size, int64_t part, const Call& call) {
    at::parallel_for(0, (size + part - 1) / part, 1, [&](int64_t begin, int64_t end) {
      for (int64_t index = begin; index < end; ++index) call(index * part);
      at::native::cpublas::brgemm_release();
    });
  }

  brgemm::Bits* packed_columns(int64_t j, int64_t depth) const {
    return static_cast<brgemm::Bits*>(right_.mutable_data_ptr()) + j * padded_depth(depth);
  }

  void pack_columns(int64_t j, int64_t p, int64_t depth) const {
    brgemm::pack_pairs(isa_, packed_columns(j, depth), b_.at(j, p), std::min(kTileColumns, n_ - j), depth, padded_depth(depth));
  }

  void multiply_rows(int64_t i, int64_t p, int64_t depth, bool adds) const {
    alignas(64) brgemm::Bits left[kTileRows * kBlockDepth];
    const int64_t rows = std::min(kTileRows, m_ - i), width = padded_depth(depth);
    brgemm::pack_rows(isa_, left, a_.at(i, p), rows, depth, width);
    for (int64_t j = 0; j < n_; j += kTileColumns) {
      const int64_t columns = std::min(kTileColumns, n_ - j);
      at::native::cpublas::brgemm(rows, columns, width, width, columns, c_row_, adds,
                                  reinterpret_cast<const c10::BFloat16*>(left),
                                  reinterpret_cast<const c10::BFloat16*>(packed_columns(j, depth)), c_ + i * c_row_ + j);
    }
  }

  Isa isa_;
  OperandLines<brgemm::Bits> a_, b_;
  int64_t m_, n_, k_;
  float* c_;
  int64_t c_row_;
  bool adds_;
  at::Tensor right_;  // a block of b, in panels of kTileColumns columns
};

class Brgemm final : public Gemm {
 public:
  explicit Brgemm(Isa isa) : isa_(isa) {}
  bool takes(at::DeviceType device, at::ScalarType dtype) const override { return device == at::kCPU && dtype == at::kBFloat16; }

  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override {
    if (c.scalar_type() != at::kFloat) return find_gemm("aten").run(a, b, c, beta, alpha);
    if (alpha == 1 && (beta == 0 || beta == 1)) return BrgemmCall(isa_, a, b, c, beta == 1).run();
    const at::Tensor product = at::empty(c.sizes(), at::kFloat);
    BrgemmCall(isa_, a, b, product, false).run();
    product.mul_(alpha);
    if (beta == 0) at::Tensor(c).copy_(product);
    else at::Tensor(c).mul_(beta).add_(product);
  }

 private:
  Isa isa_;
};

}  // namespace

std::shared_ptr<const Gemm> make_brgemm() {
  return find_processor().has_bf16 ? std::make_shared<Brgemm>(best_isa()) : nullptr;
}

}  // namespace zt
