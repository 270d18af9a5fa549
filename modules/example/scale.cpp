#include "scale.h"

#include <ATen/ops/mul.h>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::example {

Scale::Scale(int64_t channels) : weight_(std::make_shared<Param>()) {
  weight_->name = "weight";
  weight_->shape = {channels};
  weight_->init = init_ones();
  weight_->is_matrix = false;  // no weight decay
}

std::vector<at::Tensor> Scale::forward(at::TensorList in, Context& context) {
  const at::Tensor& weight = context.param(*weight_);
  if (in[0].dim() == 0 || in[0].size(-1) != weight.size(0)) {
    misuse("example.scale has {} channels and got {}: its last dim must be the channels", weight.size(0), describe(in[0]));
  }
  return {at::mul(in[0], weight)};
}

}  // namespace zt::example
