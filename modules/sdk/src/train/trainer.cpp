#include "zt/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "execute/compute.h"
#include "execute/step_handlers.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

ZT_DEFINE_OBJECT(Trainer, "Trainer")

Stateful::~Stateful() = default;
Visitor::~Visitor() = default;

// Values, gradients and losses of the step so far would be lost.
void refuse_by_hand(bool is_under_way, const char* call) {
  if (is_under_way) misuse("trainer:{}: forward / backward by hand are under way: finish with trainer:finish_step() first", call);
}

Trainer::~Trainer() {
  if (!compute_) return;
  for (const auto& param : spec_->model()->params()) param->values = at::Tensor();
}

void Trainer::drain() {
  if (running_) running_->drain();
  running_ = nullptr;
}

Executor& Trainer::activate(Mode mode) {
  if (options_.dry) misuse("this trainer is dry: it reports, but has no buffers to run on");
  Executor& wanted = executor(mode);
  if (running_ != &wanted) drain();
  running_ = &wanted;
  return wanted;
}

// Before a program without a COUNT in front: where it communicates, the ranks have to be at the same one.
void Trainer::meet(const Program& program) const {
  const bool communicates = std::any_of(program.actions.begin(), program.actions.end(), [](const Action& action) {
    return action.kind != Kinds::get().count && !action.axes().empty();
  });
  if (communicates && !data_axes_.empty()) sum_counts(state_.comm(data_axes_), {}, program.mode, state_.step);
}

void Trainer::check_batch(const Batch& batch, int parts) const {
  if (batch.empty()) misuse("the batch is empty: give a table of tensors such as {{tokens = ..., labels = ...}}");
  const auto& [first_name, first] = *batch.begin();
  for (const auto& [name, field] : batch) {
    if (field.dim() == 0) misuse("the batch field '{}' is a scalar: fields are [samples, ...]", name);
    if (field.size(0) != first.size(0)) {
      misuse("the batch fields '{}' and '{}' have {} and {} samples", first_name, name, first.size(0), field.size(0));
    }
  }
  if (first.size(0) % parts != 0 || first.size(0) == 0) {
    misuse("this rank's {} samples cannot be cut into {} micro-batches evenly: change the batch or micro_batches", first.size(0),
           parts);
  }
}

int Trainer::data_ranks() const {
  const Coord coord = spec_->coord();
  int ranks = 1;
  for (const auto& axis : data_axes_) ranks *= coord.size(axis);
  return ranks;
}

int64_t Trainer::first_sample(const Batch& batch) const {
  const Coord coord = spec_->coord();
  int64_t place = 0;
  for (const auto& axis : data_axes_) place = place * coord.size(axis) + coord[axis];
  return place * batch.begin()->second.size(0);
}

void Trainer::set_lr(std::optional<double> lr) {
  if (lr && !(std::isfinite(*lr) && *lr >= 0)) misuse("trainer:set_lr: a learning rate is finite and not negative, got {}", *lr);
  lr_ = lr;
}

void Trainer::prepare_step() {
  state_.clip = options_.clip;
  state_.loss_scale = loss_scale();
  state_.scalars.step = updates_done_ + 1;
  const double base = options_.optimizer->lr();
  const auto scheduled = [&](const Schedule& schedule) {
    return schedule.lr(schedule.counts_updates() ? updates_done_ : state_.step, base);
  };
  state_.scalars.lr = lr_ ? *lr_ : options_.schedule ? scheduled(*options_.schedule) : base;
}

StepResult Trainer::result(int64_t begin_ns) const {
  StepResult result;
  result.step = state_.step;
  result.loss = without_nan_sign(state_.loss);
  result.grad_norm = without_nan_sign(state_.grad_norm);
  result.lr = state_.scalars.lr;
  result.loss_scale = state_.loss_scale;
  result.tokens = state_.counts.tokens;
  result.samples = state_.counts.samples;
  result.seconds = static_cast<double>(now_ns() - begin_ns) * 1e-9;
  result.skipped = !state_.is_finite;
  result.terms = state_.losses;
  return result;
}

// The step is over: count it, or say what was not finite.
StepResult Trainer::end_step(int64_t begin_ns) {
  const StepResult done = result(begin_ns);
  if (state_.is_finite) ++updates_done_;
  const bool is_possible = !loss_scale_ || loss_scale_->update(!state_.is_finite);
  if (!state_.is_finite) skip_step();
  if (!is_possible) {
    fault("step {}: the gradients overflow at the least loss scale ({}): lower min_loss_scale or the learning rate, or give bf16",
          state_.step, loss_scale());
  }
  given_.clear();
  ++state_.step;
  return done;
}

StepResult Trainer::step(const Batch& batch) {
  refuse_by_hand(is_by_hand_under_way(), "step");
  check_batch(batch, spec_->micro_batches());
  const int64_t begin_ns = now_ns();
  Executor& running = activate(Mode::train);
  normalisation_->is_by_hand = false;
  prepare_step();
  given_ = {batch};
  note_shapes(batch);
  compute_->begin(batch, Mode::train, spec_->micro_batches(), first_sample(batch));
  {
    const AllocationWatch::Scope counted(activations_);
    running.run(state_);
  }
  return end_step(begin_ns);
}

StepResult Trainer::evaluate(const Batch& batch) {
  refuse_by_hand(is_by_hand_under_way(), "evaluate");
  check_batch(batch, 1);
  const int64_t begin_ns = now_ns();
  Executor& running = activate(Mode::eval);
  normalisation_->is_by_hand = false;
  compute_->begin(batch, Mode::eval, 1, first_sample(batch));
  running.run(state_);
  StepResult evaluated = result(begin_ns);
  evaluated.grad_norm.reset();  // the state holds those of the last step
  evaluated.lr.reset();
  return evaluated;
}

std::map<std::string, at::Tensor> Trainer::infer(const Batch& batch) {
  refuse_by_hand(is_by_hand_under_way(), "infer");
  check_batch(batch, 1);
  Executor& running = activate(Mode::generate);
  compute_->begin(batch, Mode::generate, 1, first_sample(batch));
  meet(running.program());
  running.run(state_);
  return compute_->outputs(0);
}

}  // namespace zt
