// y = x W^T + b, the matmul that most layers use.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "lora.h"
#include "matmul_input.h"
#include "params.h"
#include "zt/model/layer.h"

namespace zt::nn {

// The values of an Affine in one forward and its backward.
struct AffineValues {
  at::Tensor weight;                      // [out, in]
  at::Tensor bias;                        // [out]; undefined means no bias
  std::shared_ptr<LoraValues> lora = {};  // null means that no adapter is used

  // Returns whether the backward needs the input: for the gradient of the weight or of adapters.
  bool needs_input() const { return weight.requires_grad() || (lora && lora->has_gradient()); }
};

struct Affine {
  std::shared_ptr<Param> weight;  // [out, in]
  std::shared_ptr<Param> bias;    // [out]; null means no bias

  Lora lora = {};  // its adapters

  Params params() const { return joined({bias ? Params{weight, bias} : Params{weight}, lora.params()}); }
  // Returns the values of params() as arguments of an autograd function, which tell autograd on what its result depends; none
  // where autograd records nothing.
  std::vector<at::Tensor> parameters(Context& context) const;
  // Returns this without its bias, which is added later.
  Affine without_bias() const { return {weight, nullptr, lora}; }
  // `x`, which comes over `enter`, has the dims of the input but the last.
  AffineValues values(Context& context, const at::Tensor& x, const Crossing& enter) const;
};

enum class Bias : uint8_t { no, yes };

// Makes the parameters `prefix`weight, initialised by `init`, and optionally `prefix`bias, initialised to zeros.
Affine make_affine(const std::string& prefix, int64_t in, int64_t out, Bias bias, InitFn init);

// Adds the gradients of an Affine and its adapters to their sinks. Made in the forward, used in its backward.
class AffineGradient {
 public:
  AffineGradient(const Affine& affine, const AffineValues& values, Context& context);
  // Adds dy^T x to the weight's sink, the column sums of dy to the bias's sink, and the gradients of adapters, whose part of the
  // gradient of x was computed (LoraPass::add_input_gradient): at once, or later in the action W if the program splits the
  // backward. Sums over the rows are in fp32 (fp64 for fp64); they are rounded once to the sink's dtype. dy: [rows, out], x:
  // [rows, in]; undefined if the weight has no gradient.
  void add(at::Tensor dy, at::Tensor x) const;
  // The same for an Affine of several groups without adapters, whose weight is [groups, out, in] and whose bias is [groups, out].
  // The gradients of group g come from dy[g] and x[g], which may have no rows.
  void add_groups(std::vector<at::Tensor> dy, std::vector<at::Tensor> x) const;

 private:
  Context* context_;
  Context::SinkFn weight_, bias_;
  std::shared_ptr<LoraValues> lora_;
};

// Adds alpha dy^T x to the sink, summed over the rows in fp32 (fp64 for fp64). dy: [rows, out], x: [rows, in].
void add_weight_gradient(const Context::Sink& sink, const at::Tensor& dy, const at::Tensor& x, double alpha = 1);

// Writes x weight^T to `out` [rows, out], without autograd. x: [rows, in]. All tensors have one dtype. `residual` ([rows, out])
// and `bias` are added if defined. For meta tensors it only counts operations.
void write_affine_rows(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& residual = {});
// Returns a new tensor with the result of write_affine_rows.
at::Tensor affine_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& residual = {});
// Writes the gradient of affine_rows's x to `dx` [rows, in]: dy weight, without autograd. dy: [rows, out].
void write_affine_input_gradient(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& weight);
// Returns a new tensor with the result of write_affine_input_gradient.
at::Tensor affine_input_gradient(const at::Tensor& dy, const at::Tensor& weight);

// Returns the sums of the columns of dy [rows, columns] in fp32 (fp64 for fp64), without autograd.
at::Tensor column_sums(const at::Tensor& dy);

// Returns x W^T + b [..., out] with autograd, plus `residual` ([..., out]) if it is defined. x: [..., in]. x and residual of
// another floating dtype are converted to the weight's. `enter`, `leave`: how x gets to the ranks that share W, and the result
// back. Throws Misuse if x has another shape or is not floating-point.
at::Tensor linear(const MatmulInput& x, const Affine& affine, Context& context, const at::Tensor& residual = {},
                  Crossing enter = {}, Crossing leave = {});

// Returns x plus `bias` ([columns], or null) plus `residual` (of the shape of x, or undefined), with autograd.
at::Tensor add_bias(const at::Tensor& x, const std::shared_ptr<Param>& bias, Context& context, const at::Tensor& residual = {});
// Returns x [rows, columns] plus, in the rows of group g, `bias`[g] ([groups, columns], or null), with autograd. counts[g]: the
// number of the group's consecutive rows, which may be 0; in total `rows`.
at::Tensor add_group_bias(const at::Tensor& x, const std::shared_ptr<Param>& bias, std::vector<int64_t> counts, Context& context);

}  // namespace zt::nn
