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
  double std = 0.02;           // of the initial weights
  double residual_std = 0.02;  // of the initial weights of the product that ends in the residual stream
};

class Mlp {
 public:
  static constexpr bool kSplits = true;

  // Parameters `prefix`up.weight [columns_before(ffn), hidden] (swiglu: gate rows, then up rows) and down.weight [hidden, ffn],
  // with biases.
  Mlp(const MlpOptions& options, const std::string& prefix);

  // x: [..., hidden], the same out. With `residual` returns residual + mlp(x).
  at::Tensor run(const at::Tensor& x, Context& context, const at::Tensor& residual = {}) const;
  Params params() const;

 private:
  Activation activation_;
  Affine up_, down_;
};

}  // namespace zt::nn
