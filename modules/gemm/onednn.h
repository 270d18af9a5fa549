// The GEMM provider "onednn": fp32 GEMMs by the oneDNN library of the Linux distribution.
#pragma once

#include <memory>

#include "onednn_library.h"
#include "zt/gemm/gemm.h"

namespace zt::onednn {

// GEMMs of fp32 matrices on the CPU. The first call of takes() tests whether the library multiplies correctly, which beside
// another version of LibTorch it may not. If the test fails, takes() always returns false.
class Sgemm final : public Gemm {
 public:
  explicit Sgemm(SgemmFn* sgemm) : sgemm_(sgemm) {}
  bool takes(at::DeviceType device, at::ScalarType dtype) const override;
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override;

 private:
  SgemmFn* sgemm_;
};

// Returns the provider, or null if the library cannot be used. Thread-safe.
std::shared_ptr<const Gemm> make_sgemm();

}  // namespace zt::onednn
