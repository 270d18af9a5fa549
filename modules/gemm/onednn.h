// The GEMM provider "onednn": the oneDNN of the distribution, for fp32.
#pragma once

#include <memory>

#include "onednn_library.h"
#include "zt/gemm/gemm.h"

namespace zt::onednn {

// GEMMs of fp32 matrices on the CPU. It takes nothing if the library multiplies wrongly, as beside another version of LibTorch it
// might; `takes` finds out at its first call.
class Sgemm final : public Gemm {
 public:
  explicit Sgemm(SgemmFn* sgemm) : sgemm_(sgemm) {}
  bool takes(at::DeviceType device, at::ScalarType dtype) const override;
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override;

 private:
  SgemmFn* sgemm_;
};

// Returns the provider; null where the library cannot be used. Thread-safe.
std::shared_ptr<const Gemm> make_sgemm();

}  // namespace zt::onednn
