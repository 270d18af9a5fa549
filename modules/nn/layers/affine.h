// y = x W^T + b, the matrix product that most layers are made of.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "params.h"
#include "zt/model/layer.h"

namespace zt::nn {

struct Affine {
  std::shared_ptr<Param> weight;  // [out, in]
  std::shared_ptr<Param> bias;    // [out]; nullptr: none

  Params params() const { return bias ? Params{weight, bias} : Params{weight}; }
  // The bias, undefined if there is none.
  at::Tensor bias_value() const { return bias ? bias->get() : at::Tensor(); }
};

enum class Bias : uint8_t { no, yes };

// Parameters `prefix`weight and, of zeros, `prefix`bias.
Affine make_affine(const std::string& prefix, int64_t in, int64_t out, Bias bias, InitFn init);

// Where the gradients of an Affine go. Made in the forward, used in its backward.
class AffineGradient {
 public:
  AffineGradient(const Affine& affine, Context& context);
  // Adds dy^T x to the weight's sink and the column sums of dy to the bias's: now, or in the action W. Both are summed in fp32
  // (fp64 for fp64) over the rows; a sink of another floating dtype gets them rounded once. dy: [rows, out], x: [rows, in].
  void add(at::Tensor dy, at::Tensor x) const;

 private:
  using SinkFn = std::function<Context::Sink()>;
  Context* context_;
  SinkFn weight_, bias_;
};

// The product on rows, without autograd: [rows, in] -> [rows, out], all of one dtype. `residual` ([rows, out]) and `bias` are
// added if defined. On meta tensors it only allocates.
at::Tensor affine_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& residual = {});
// The gradient of its x, likewise: dy [rows, out] -> [rows, in].
at::Tensor affine_input_gradient(const at::Tensor& dy, const at::Tensor& weight);

// The product with its backward. x: [..., in] -> [..., out]; with `residual` ([..., out]) returns residual + product. x and
// residual of another floating dtype are converted to the weight's.
at::Tensor linear(const at::Tensor& x, const Affine& affine, Context& context, const at::Tensor& residual = {});

}  // namespace zt::nn
