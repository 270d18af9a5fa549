// The providers "aten" (CPU) and "cublas" (CUDA): ATen's own GEMMs.
#include <ATen/ATen.h>

#include "gemm.h"
#include "zt/gemm/gemm_widen.h"

namespace zt {

namespace {

class AtenGemm final : public Gemm {
 public:
  bool takes(at::DeviceType device, at::ScalarType dtype) const override {
    return device == at::kCPU && (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf);
  }

  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override {
    if (c.scalar_type() == a.scalar_type()) c.addmm_(a, b, beta, alpha);
    else multiply_widened(a, b, c, beta, alpha);  // ATen would round the result to 16 bits
  }
};

class CublasGemm final : public Gemm {
 public:
  bool takes(at::DeviceType device, at::ScalarType) const override { return device == at::kCUDA; }

  // Accumulates 16-bit types into fp32 without a temporary.
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override {
    if (c.scalar_type() == a.scalar_type()) {
      c.addmm_(a, b, beta, alpha);
      return;
    }
    at::Tensor out = c;
    if (beta == 0 && alpha == 1) at::mm_out(out, a, b, c.scalar_type());
    else at::addmm_out(out, c, a, b, c.scalar_type(), beta, alpha);
  }
};

}  // namespace

std::shared_ptr<const Gemm> make_aten_gemm() {
  return std::make_shared<AtenGemm>();
}

std::shared_ptr<const Gemm> make_cublas_gemm() {
  return std::make_shared<CublasGemm>();
}

}  // namespace zt
