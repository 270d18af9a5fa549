// Dropout (Srivastava et al. 2014). Its mask does not depend on how samples are distributed over ranks and micro-batches.
#pragma once

#include "params.h"
#include "zt/model/layer.h"

namespace zt::nn {

// Decides which elements of a tensor [samples, ...] dropout keeps. The decision is a function of (the context's dropout stream,
// the sample's index in the global batch, the element's index in the sample, index). A layer with several dropouts gives each
// another `index`. Any part of the mask can be computed, in any order. Threads: any.
class DropoutMask {
 public:
  DropoutMask(double probability, const Context& context, int index);

  // Sets kept[j], for j < count, to 1 if element first + j of the micro-batch's sample is kept, else to 0.
  void fill(uint8_t* kept, int64_t sample, int64_t first, int64_t count) const;
  // Returns the mask of a whole tensor as bytes 0 and 1; on the device meta, only allocates it. `first`: the number of its first
  // element in a sample, for a tensor of consecutive elements of larger samples.
  at::Tensor mask(at::IntArrayRef shape, at::Device device = at::kCPU, int64_t first = 0) const;
  // Returns the factor of kept elements.
  double scale() const { return 1 / (1 - probability_); }

 private:
  double probability_;
  Philox stream_;
  int64_t first_sample_, first_element_;
};

class Dropout {
 public:
  static constexpr bool kSplits = false;

  explicit Dropout(double probability, int index = 0) : probability_(probability), index_(index) {}

  bool is_active(const Context& context) const { return probability_ > 0 && context.mode == Mode::train; }
  // In mode train, sets each element of x to 0 with `probability` and divides the others by 1 - probability. In other modes,
  // returns x. Adds `residual` if it is defined. x: [samples, ...].
  at::Tensor run(const at::Tensor& x, Context& context, const at::Tensor& residual = {}) const;
  Params params() const { return {}; }

 private:
  double probability_;
  int index_;
};

}  // namespace zt::nn
