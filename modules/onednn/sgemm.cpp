#include "sgemm.h"

#include "zt/error.h"
#include "zt/tensor.h"

namespace zt::onednn {

void Sgemm::run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const {
  const BlasLayout left = blas_layout(a), right = blas_layout(b);
  const int status = sgemm_(left.transposed ? 'T' : 'N', right.transposed ? 'T' : 'N', c.size(0), c.size(1), a.size(1),
                            static_cast<float>(alpha), a.const_data_ptr<float>(), left.ld, b.const_data_ptr<float>(), right.ld,
                            static_cast<float>(beta), c.mutable_data_ptr<float>(), blas_layout(c).ld);
  if (status != 0) fault("oneDNN cannot multiply {} by {}: dnnl_sgemm returned {}", describe(a), describe(b), status);
}

const std::string& register_provider() {
  static const Library& opened = [&]() -> const Library& {
    const Library& found = library();
    register_gemm("onednn", std::make_shared<Sgemm>(found.sgemm));
    return found;
  }();
  return opened.path;
}

}  // namespace zt::onednn
