#include "onednn.h"

#include <ATen/Parallel.h>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::onednn {

bool Sgemm::takes(at::DeviceType device, at::ScalarType dtype) const {
  if (device != at::kCPU || dtype != at::kFloat) return false;
  static const bool is_right = multiplies(*library().sgemm);
  return is_right;
}

void Sgemm::run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const {
  at::internal::lazy_init_num_threads();  // oneDNN uses OpenMP's thread count, which ATen sets at the calling thread's first loop
  const BlasLayout left = blas_layout(a), right = blas_layout(b);
  const int status = sgemm_(left.transposed ? 'T' : 'N', right.transposed ? 'T' : 'N', c.size(0), c.size(1), a.size(1),
                            static_cast<float>(alpha), a.const_data_ptr<float>(), left.ld, b.const_data_ptr<float>(), right.ld,
                            static_cast<float>(beta), c.mutable_data_ptr<float>(), blas_layout(c).ld);
  if (status != 0) fault("oneDNN cannot multiply {} by {}: dnnl_sgemm returned {}", describe(a), describe(b), status);
}

std::shared_ptr<const Gemm> make_sgemm() {
  SgemmFn* sgemm = library().sgemm;
  return sgemm ? std::make_shared<Sgemm>(sgemm) : nullptr;
}

}  // namespace zt::onednn
