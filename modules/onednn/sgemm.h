// The gemm provider "onednn".
#pragma once

#include "library.h"
#include "zt/gemm.h"

namespace zt::onednn {

// Products of fp32 matrices on the CPU.
class Sgemm final : public Gemm {
 public:
  explicit Sgemm(SgemmFn* sgemm) : sgemm_(sgemm) {}
  bool takes(at::DeviceType device, at::ScalarType dtype) const override { return device == at::kCPU && dtype == at::kFloat; }
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override;

 private:
  SgemmFn* sgemm_;
};

// Registers it, at the first call; returns the library's path. As `library`. Thread-safe.
const std::string& register_provider();

}  // namespace zt::onednn
