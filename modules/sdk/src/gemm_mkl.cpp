// MKL's products of 16-bit types with sums in fp32, which LibTorch carries but calls only where it has no oneDNN.
#include <ATen/ATen.h>

#include <climits>

#include "gemm.h"
#include "zt/error.h"
#include "zt/tensor.h"

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

class MklGemm final : public Gemm {
 public:
  bool takes(at::DeviceType device, at::ScalarType dtype) const override {
    return device == at::kCPU && (dtype == at::kBFloat16 || dtype == at::kHalf);
  }

  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override {
    if (c.scalar_type() == at::kFloat) {
      accumulate(a, b, c, beta, alpha);
      return;
    }
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
