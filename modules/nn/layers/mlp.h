// y = activation(x Wup^T + bup) Wdown^T + bdown, as one autograd function.
#pragma once

#include <string>

#include "activation.h"
#include "affine.h"

namespace zt::nn {

struct MlpOptions {
  int64_t hidden = 0;  // columns of input and output
  int64_t ffn = 0;     // columns inside
  std::string activation = "gelu_tanh";
  bool bias = true;
  double std = 0.02;           // standard deviation of the initial weights of `up`
  double residual_std = 0.02;  // standard deviation of the initial weights of `down`
};

class Mlp {
 public:
  static constexpr bool kSplits = true;

  // Makes the parameters `prefix`up.weight [columns_before(ffn), hidden] (swiglu: gate rows, then up rows) and
  // `prefix`down.weight [hidden, ffn], with biases if options.bias.
  Mlp(const MlpOptions& options, const std::string& prefix);

  // Returns mlp(x) of the shape of x, plus `residual` if it is defined. x: [..., hidden].
  at::Tensor run(const at::Tensor& x, Context& context, const at::Tensor& residual = {}) const;
  Params params() const;

 private:
  Activation activation_;
  Affine up_, down_;
};

}  // namespace zt::nn
