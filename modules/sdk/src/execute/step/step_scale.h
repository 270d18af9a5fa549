// How the sums of a step are scaled: with what its backwards start, and by what losses and gradients are divided.
#pragma once

#include <optional>

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
  double set_counts(const Counts& global, double parts);
  // By hand, before a micro-batch: its counts.
  void set_micro_batch(const Counts& counts);

  // Returns the gradient with which the backward of a loss term starts, without the loss scale.
  double seed(Per per) const { return per == Per::token ? token_ : sample_; }
  // Returns the factor of a layer's loss in the sums of a step.
  double loss_factor(Per per) const { return is_by_hand() ? seed(per) : 1; }
  // Returns the divisor of these sums over all ranks. Throws Misuse if nothing counts.
  double loss_divisor(Per per, const Counts& global) const;

  // k: the power of two is 2^-k, fixed at the first whole training step. Checkpoints hold it.
  std::optional<int> exponent;

 private:
  double means_ = 0;  // by hand: number of micro-batches of all ranks; 0: a whole step
  double token_ = 1, sample_ = 1;
};

}  // namespace zt
