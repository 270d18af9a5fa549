// y = activation(x Wup^T + bup) Wdown^T + bdown, as one autograd function.
#pragma once

#include <string>

#include "parts/activation.h"
#include "parts/tensor_axis.h"
#include "zt/base/options.h"

namespace zt::nn {

struct MlpOptions : TensorAxisOptions {
  int64_t hidden = 0;  // columns of input and output
  int64_t ffn = 0;     // columns inside
  Activation activation = Activation::gelu_tanh;
  bool bias = true;
  double std = 0.02;           // standard deviation of the initial weights of `up`
  double residual_std = 0.02;  // standard deviation of the initial weights of `down`
  int64_t tile = 0;            // rows whose inner columns exist at the same time; 0: all
  std::optional<LoraOptions> lora = {};
};

// Adds the options of MlpOptions to a schema. Options derives from MlpOptions.
template <class Options>
Schema<Options>&& mlp_options(Schema<Options>&& schema) {
  return std::move(schema)
      .required("hidden", &Options::hidden, "columns of input and output", at_least(1))
      .required("ffn", &Options::ffn, "columns between the two matmuls", at_least(1))
      .optional("activation", &Options::activation, "the nonlinearity")
      .optional("bias", &Options::bias, "add biases")
      .optional("std", &Options::std, "standard deviation of the initial up weights", at_least(0))
      .optional("residual_std", &Options::residual_std, "standard deviation of the initial down weights", at_least(0));
}

class Mlp {
 public:
  // Makes the parameters `prefix`up.weight [columns_before(ffn), hidden] (swiglu: gate rows, then up rows) and
  // `prefix`down.weight [hidden, ffn], with biases if options.bias, and those of adapters. `path` names the options in messages.
  Mlp(const MlpOptions& options, const std::string& prefix, const std::string& path);

  // Returns mlp(x) of the shape of x, plus `residual` if it is defined. x: [..., hidden].
  at::Tensor run(const MatmulInput& x, Context& context, const at::Tensor& residual = {}) const;
  Params params() const { return joined({up_.params(), down_.params()}); }
  const TensorAxis& tensor() const { return tensor_; }

 private:
  Activation activation_;
  Affine up_, down_;
  TensorAxis tensor_;
  int64_t tile_;
};

}  // namespace zt::nn
