#include "step_control.h"

#include <cmath>

#include "zt/base/error.h"
#include "zt/base/options.h"

namespace zt {

StepControl::StepControl(const TrainerOptions& options) : options_(options) {
  if (options_.loss_scale) loss_scale_.emplace(*options_.loss_scale);
}

void StepControl::set_lr(std::optional<double> lr) {
  if (lr && !(std::isfinite(*lr) && *lr >= 0)) misuse("trainer:set_lr: a learning rate is finite and not negative, got {}", *lr);
  lr_ = lr;
}

bool StepControl::ends_on_nonfinite() const {
  return options_.on_nonfinite.value_or(loss_scale_ ? OnNonfinite::skip : OnNonfinite::error) == OnNonfinite::error;
}

void StepControl::prepare(StepState& state) const {
  state.clip = options_.clip;
  state.loss_scale = loss_scale();
  state.scalars.step = updates_ + 1;
  const double base = options_.optimizer->lr();
  const auto scheduled = [&](const Schedule& schedule) {
    return schedule.lr(schedule.counts_updates() ? updates_ : state.step, base);
  };
  state.scalars.lr = lr_ ? *lr_ : options_.schedule ? scheduled(*options_.schedule) : base;
}

bool StepControl::finish(bool is_finite) {
  if (is_finite) ++updates_;
  return !loss_scale_ || loss_scale_->update(!is_finite);
}

void StepControl::visit(Visitor& visitor) {
  Value updates(updates_), scale(loss_scale_ ? loss_scale_->state() : Value());
  Value lr = lr_ ? Value(*lr_) : Value();
  visitor.value("trainer/updates", updates);
  visitor.value("trainer/loss_scale", scale);
  visitor.value("trainer/lr", lr);
  if (!visitor.is_load()) return;
  convert(updates, "trainer/updates", updates_);
  convert(lr, "trainer/lr", lr_);
  if (loss_scale_ && !scale.is_nil()) loss_scale_->set_state(scale);  // a checkpoint of a run without fp16 has none
}

}  // namespace zt
