// How the sums of a step are scaled: with what its backwards start, and by what losses and gradients are divided.
#pragma once

#include <cmath>
#include <optional>

#include "zt/base/error.h"
#include "zt/model/layer.h"

namespace zt {

// In a whole step each valid token, or sample, of the global batch counts equally: COUNT knows their numbers before the first
// backward. In a step by hand the mean of each micro-batch counts equally.
class StepScale {
 public:
  void begin_whole() { means_ = 0; }
  // `micro_batches`: of all ranks that have different samples.
  void begin_by_hand(double micro_batches) { means_ = micro_batches; }
  bool is_by_hand() const { return means_ > 0; }

  // For COUNT of a whole step. Backwards start with a constant power of two near 1 / (tokens of a micro-batch), so that gradients
  // keep their magnitude; STEP divides by the rest in one fp32 multiplication. `global`: the counts of the global batch, of which
  // `parts` micro-batches of all ranks with different samples have one each. Returns the multiple of the gradient of the
  // objective that the sums will be, without the loss scale.
  double set_counts(const Counts& global, double parts) {
    const auto base = static_cast<double>(global.tokens > 0 ? global.tokens : global.samples);
    if (!exponent) exponent = static_cast<int>(std::lround(std::log2(base / parts)));
    token_ = std::ldexp(1.0, -*exponent);
    sample_ = token_ * base / static_cast<double>(global.samples);
    return token_ * base;
  }
  // By hand, before a micro-batch: its counts.
  void set_micro_batch(const Counts& counts) {
    token_ = counts.tokens > 0 ? 1.0 / static_cast<double>(counts.tokens) : 0;
    sample_ = counts.samples > 0 ? 1.0 / static_cast<double>(counts.samples) : 0;
  }

  // Returns the gradient with which the backward of a loss term starts, without the loss scale.
  double seed(Per per) const { return per == Per::token ? token_ : sample_; }
  // Returns the factor of a layer's loss in the sums of a step.
  double loss_factor(Per per) const { return is_by_hand() ? seed(per) : 1; }
  // Returns the divisor of these sums over all ranks. Throws Misuse if nothing counts.
  double loss_divisor(Per per, const Counts& global) const {
    if (is_by_hand()) return means_;
    const int64_t count = per == Per::token ? global.tokens : global.samples;
    if (count == 0)
      misuse("the global batch has no valid token, so the loss per token is not defined: are all labels ignore_index?");
    return static_cast<double>(count);
  }

  // k: the power of two is 2^-k, fixed at the first whole training step. Checkpoints hold it.
  std::optional<int> exponent;

 private:
  double means_ = 0;  // by hand: number of micro-batches of all ranks; 0: a whole step
  double token_ = 1, sample_ = 1;
};

}  // namespace zt
