// LayerNorm (Ba, Kiros, Hinton 2016) and RMSNorm (Zhang, Sennrich 2019) over the last dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "params.h"
#include "zt/model/layer.h"

namespace zt::nn {

enum class NormKind : uint8_t { none, layernorm, rmsnorm };

NormKind parse_norm(const std::string& name);
std::vector<std::string> norm_names();

class Norm {
 public:
  static constexpr bool kSplits = false;

  // Parameters `prefix`weight of ones and, for layernorm with a bias, `prefix`bias of zeros, each [hidden]. none: no parameters.
  Norm(NormKind kind, int64_t hidden, double eps, bool bias, const std::string& prefix);

  // x: [..., hidden], the same out, in the parameters' dtype. Statistics in float32, of float64 in float64. Keeps x and the
  // statistics for the backward, which puts the gradients of weight and bias into the context's sinks.
  at::Tensor run(const at::Tensor& x, Context& context) const;

  // For a branch and what goes past it, whose gradients are added by the norm's backward, without a pass of their own: `x` is the
  // given one, to be used in its place, and never written in place (autograd refuses). In the parameters' dtype; without a norm
  // both are the given one as it is.
  struct Fork {
    at::Tensor normed, x;
  };
  Fork fork(const at::Tensor& x, Context& context) const;
  Params params() const;

 private:
  NormKind kind_;
  double eps_;
  std::shared_ptr<Param> weight_, bias_;
};

}  // namespace zt::nn
