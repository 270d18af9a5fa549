// A number per token, such as the value of a state or a reward: final norm and one row of weights.
#pragma once

#include <memory>

#include "norms/norm.h"
#include "parts/tensor_axis.h"

namespace zt::nn {

struct ValueHeadOptions : TensorAxisOptions {
  int64_t hidden = 0;
  NormKind norm = NormKind::layernorm;
  double eps = 1e-5;
  bool norm_bias = true;
  bool bias = false;
  double std = 0;  // standard deviation of the initial weights
};

// Makes the layer nn.value_head.
std::shared_ptr<Layer> value_head_layer(const ValueHeadOptions& options);

}  // namespace zt::nn
