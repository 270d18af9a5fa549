// The numbers that a step is run with: learning rate, loss scale, clipping, and how many updates there were.
#pragma once

#include <optional>

#include "zt/base/stateful.h"
#include "zt/train/trainer.h"

namespace zt {

class StepControl {
 public:
  explicit StepControl(const TrainerOptions& options);

  // The base learning rate of the following steps instead of the schedule's; nullopt: the schedule's again. Throws Misuse unless
  // it is finite and not negative.
  void set_lr(std::optional<double> lr);
  double loss_scale() const { return loss_scale_ ? loss_scale_->value() : 1; }
  bool has_dynamic_loss_scale() const { return loss_scale_ && loss_scale_->is_dynamic(); }
  // Whether a step whose loss or gradient is not finite ends the run; otherwise it is skipped.
  bool ends_on_nonfinite() const;

  // Sets what the step's actions read.
  void prepare(StepState& state) const;
  // Counts the step and adapts the loss scale. Returns false if the gradients overflowed at the least loss scale.
  bool finish(bool is_finite);

  void visit(Visitor& visitor);

 private:
  const TrainerOptions& options_;
  int64_t updates_ = 0;  // steps that were not skipped
  std::optional<LossScale> loss_scale_;
  std::optional<double> lr_;  // instead of the schedule's
};

}  // namespace zt
