// LayerNorm (Ba, Kiros, Hinton 2016) and RMSNorm (Zhang, Sennrich 2019) over the last dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "norm_rows.h"
#include "parts/matmul_input.h"
#include "parts/params.h"
#include "zt/model/layer.h"

namespace zt::nn {

class Norm {
 public:
  // Makes the parameters `prefix`weight, initialised to ones, and, for layernorm with a bias, `prefix`bias, initialised to zeros,
  // each [hidden]. Kind none has no parameters.
  Norm(NormKind kind, int64_t hidden, double eps, bool bias, const std::string& prefix);

  // Returns the norm of x in the parameters' dtype. x: [..., hidden]. Statistics are in float32 (float64 for float64). Keeps x
  // and the statistics for the backward, which adds the gradients of weight and bias to the context's sinks.
  at::Tensor run(const at::Tensor& x, Context& context) const;

  // The norm of x for a branch, and x itself for the residual. The caller uses Fork::x instead of its own x: the norm's backward
  // then adds both gradients in one pass. Fork::x must not be written in place (autograd refuses). Both are in the parameters'
  // dtype; for kind none, both are x as given.
  struct Fork {
    MatmulInput normed;
    at::Tensor x;
  };
  // With LayerRecompute::selective, `normed` need not be kept for the backward of a matmul: it is computed from x again.
  Fork fork(const at::Tensor& x, Context& context, LayerRecompute recompute = LayerRecompute::none) const;
  Params params() const;

 private:
  NormKind kind_;
  double eps_;
  std::shared_ptr<Param> weight_, bias_;
};

}  // namespace zt::nn
