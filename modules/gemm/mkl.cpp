// MKL's GEMMs of 16-bit types with sums in fp32. LibTorch contains them, but calls them only where it has no oneDNN.
#include <ATen/ATen.h>

#include <algorithm>
#include <climits>
#include <vector>

#include "libraries.h"
#include "processor.h"
#include "zt/base/error.h"
#include "zt/gemm/gemm_widen.h"

// Declarations from MKL's mkl_cblas.h, with 32-bit integers. The symbols are weak, because a LibTorch without MKL lacks them.
extern "C" {
using MklHalfGemm = void(int layout, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const uint16_t* a,
                         int lda, const uint16_t* b, int ldb, float beta, float* c, int ldc);
[[gnu::weak]] MklHalfGemm cblas_gemm_bf16bf16f32;
[[gnu::weak]] MklHalfGemm cblas_gemm_f16f16f32;
}

namespace zt {

namespace {

constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;

int to_int(int64_t size) {
  if (size > INT_MAX)
    misuse(
        "the gemm provider 'mkl' uses 32-bit sizes and cannot multiply a matrix of {} rows or columns: choose another provider",
        size);
  return static_cast<int>(size);
}

// On a processor without instructions for a 16-bit type, MKL first makes fp32 copies of a and b. Our own tiles (multiply_widened)
// are faster in two cases: for few rows, because each copy is then used only a few times, and if the copies exceed the caches.
// The memory of our tiles does not grow with the matrices. In all other cases MKL is faster.
constexpr int64_t kPackingRows = 256;  // at most this many rows count as few
constexpr int64_t kCopies = 10 << 20;  // elements (40 MiB); larger copies exceed the caches

bool is_better_widened(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  if (find_processor().multiplies(a.scalar_type())) return false;
  const bool is_sum = c.scalar_type() == at::kFloat;
  const bool has_few_rows = std::min(c.size(0), c.size(1)) <= kPackingRows;
  return (has_few_rows && !is_sum) || a.numel() + b.numel() + (is_sum ? 0 : c.numel()) > kCopies;
}

class MklGemm final : public Gemm {
 public:
  bool takes(at::DeviceType device, at::ScalarType dtype) const override {
    return device == at::kCPU && (dtype == at::kBFloat16 || dtype == at::kHalf);
  }

  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override {
    if (is_better_widened(a, b, c)) return multiply_widened(a, b, c, beta, alpha);
    if (c.scalar_type() == at::kFloat) return accumulate(a, b, c, beta, alpha);
    // Each tile of c is rounded once, from its fp32 sum. The thread keeps that sum's memory, at most 4 MiB, so a step allocates
    // none.
    constexpr int64_t kTile = 1024;
    thread_local std::vector<float> memory;
    for (int64_t row = 0; row < c.size(0); row += kTile) {
      const int64_t rows = std::min(kTile, c.size(0) - row);
      for (int64_t column = 0; column < c.size(1); column += kTile) {
        const int64_t columns = std::min(kTile, c.size(1) - column);
        const at::Tensor tile = c.narrow(0, row, rows).narrow(1, column, columns);
        memory.resize(std::max(memory.size(), static_cast<size_t>(rows * columns)));
        const at::Tensor sum = at::from_blob(memory.data(), {rows, columns}, at::kFloat);
        if (beta != 0) sum.copy_(tile);
        accumulate(a.narrow(0, row, rows), b.narrow(1, column, columns), sum, beta, alpha);
        tile.copy_(sum);
      }
    }
  }

 private:
  static void accumulate(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) {
    const BlasLayout left = blas_layout(a), right = blas_layout(b);
    MklHalfGemm& multiply = a.scalar_type() == at::kHalf ? cblas_gemm_f16f16f32 : cblas_gemm_bf16bf16f32;
    multiply(kRowMajor, left.transposed ? kTranspose : kNoTranspose, right.transposed ? kTranspose : kNoTranspose,
             to_int(c.size(0)), to_int(c.size(1)), to_int(a.size(1)), static_cast<float>(alpha),
             static_cast<const uint16_t*>(a.const_data_ptr()), to_int(left.ld), static_cast<const uint16_t*>(b.const_data_ptr()),
             to_int(right.ld), static_cast<float>(beta), c.mutable_data_ptr<float>(), to_int(blas_layout(c).ld));
  }
};

}  // namespace

std::shared_ptr<const Gemm> make_mkl_gemm() {
  if (!cblas_gemm_bf16bf16f32 || !cblas_gemm_f16f16f32) return nullptr;
  return std::make_shared<MklGemm>();
}

}  // namespace zt
