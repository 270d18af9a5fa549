// Dropout (Srivastava et al. 2014) whose mask does not depend on how samples are spread over ranks and micro-batches.
#pragma once

#include "params.h"
#include "zt/model/layer.h"

namespace zt::nn {

// Which elements of a tensor [samples, ...] are kept: a function of (the context's dropout stream, the sample's place in the
// global batch, the element's place in the sample, slot). Layers with several dropouts give each a slot of its own. Any part may
// be asked for, in any order, by any thread.
class Keep {
 public:
  Keep(double probability, const Context& context, int slot);

  // kept[j]: 1 if element first + j of the micro-batch's sample is kept, else 0, for j < count.
  void fill(uint8_t* kept, int64_t sample, int64_t first, int64_t count) const;
  // All elements, as bytes; on the device meta allocated only.
  at::Tensor mask(at::IntArrayRef shape, at::Device device = at::kCPU) const;
  // What kept elements are multiplied by: 1 / (1 - probability).
  double scale() const { return 1 / (1 - probability_); }

 private:
  double probability_;
  Philox stream_;
  int64_t first_sample_, first_element_;
};

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
