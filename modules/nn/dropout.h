// Dropout (Srivastava et al. 2014) whose mask does not depend on how samples are spread over ranks and micro-batches.
#pragma once

#include "params.h"
#include "zt/layer.h"

namespace zt::nn {

// Whether the elements of x [samples, ...] are kept, as bytes: a function of (the context's dropout stream, the sample's place
// in the global batch, the element's place in the sample, slot). Layers with several dropouts give each a slot of its own.
// On the device meta it is allocated only.
at::Tensor keep_mask(at::IntArrayRef shape, double probability, const Context& context, int slot, at::Device device = at::kCPU);

class Dropout {
 public:
  static constexpr bool kSplits = false;

  explicit Dropout(double probability, int slot = 0) : probability_(probability), slot_(slot) {}

  bool is_active(const Context& context) const { return probability_ > 0 && context.mode == Mode::train; }
  // x: [samples, ...]. Training: zero with the probability, else x / (1 - probability); otherwise x. Plus `residual` if defined.
  at::Tensor run(const at::Tensor& x, Context& context, const at::Tensor& residual = {}) const;
  Params params() const { return {}; }

 private:
  double probability_;
  int slot_;
};

}  // namespace zt::nn
