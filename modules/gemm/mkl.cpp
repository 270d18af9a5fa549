// MKL's products of 16-bit types with sums in fp32, which LibTorch carries but calls only where it has no oneDNN.
#include "mkl.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <climits>

#include "processor.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/gemm/gemm_widen.h"

// As in MKL's mkl_cblas.h, 32-bit integers. Weak: a LibTorch without MKL does not have them.
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
    misuse("the gemm provider 'mkl' counts in 32 bits and cannot multiply a matrix of {} rows or columns", size);
  return static_cast<int>(size);
}

// On processors without products of a 16-bit type MKL makes fp32 copies of all of a and b first. Tiles of our own are faster than
// that where copies are used for few rows, or leave the caches; and need no more memory for more of them. Between, MKL is faster.
constexpr int64_t kPackingRows = 256;
constexpr int64_t kCopies = 10 << 20;  // elements, 40 MiB

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
    // c is rounded once, from the fp32 sum.
    const at::Tensor sum = beta == 0 ? at::empty(c.sizes(), at::kFloat) : c.to(at::kFloat).contiguous();
    accumulate(a, b, sum, beta, alpha);
    c.copy_(sum);
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
