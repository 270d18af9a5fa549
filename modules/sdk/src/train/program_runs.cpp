#include "program_runs.h"

#include <algorithm>
#include <limits>

#include "zt/base/error.h"
#include "zt/execute/resource_check.h"

namespace zt {

namespace {

std::shared_ptr<Updater> updater_of(const StepState& state, const std::shared_ptr<const Optimizer>& optimizer) {
  return optimizer ? std::make_shared<Updater>(optimizer, state) : nullptr;
}

}  // namespace

ProgramRuns::ProgramRuns(std::shared_ptr<const Plan> plan, Store& store, std::shared_ptr<const Optimizer> optimizer, Trace& trace)
    : plan_(std::move(plan)),
      state_(store.state()),
      trace_(trace),
      layers_(std::make_shared<LayerRuns>(plan_->program().model(), state_, positions_run(plan_->main(), plan_->model()))),
      handlers_(step_handlers(layers_, updater_of(state_, optimizer))) {
  const bool checks = checks_resources();
  for (const auto& pass : plan_->program().passes()) {
    for (const auto& [id, handler] : pass->handlers()) {
      const bool is_checked = checks && kind(id).role != Role::transfer;  // to wait for a send at once could take for ever
      if (!handlers_.emplace(id, is_checked ? with_resource_check(handler) : handler).second)
        misuse("the pass {} brings a handler for {}, which has one already", pass->name(), kind(id).name);
    }
  }
}

void ProgramRuns::drain() {
  if (running_) running_->drain();
  running_ = nullptr;
}

Executor& ProgramRuns::executor(Mode mode) {
  auto& held = executors_[mode];
  if (!held) {
    RankProgram program = plan_->rank_program(mode);
    if (checks_resources()) {  // nothing else may be in flight while an action is checked
      for (Action& action : program.actions) {
        if (role_of(action) != Role::transfer) action.attrs["wait"] = true;
      }
    }
    held = std::make_unique<Executor>(
        std::move(program), *state_.model, handlers_, [this](int unit) { parts().gradients.complete(unit); }, &trace_,
        [this](const Resource& resource) { return plan_->rank_units().slots.buffer_of(resource); });
  }
  return *held;
}

Executor& ProgramRuns::activate(Mode mode) {
  Executor& wanted = executor(mode);
  if (running_ != &wanted) drain();
  running_ = &wanted;
  return wanted;
}

// Throws Misuse if a training step could train nothing.
void ProgramRuns::check_objective() const {
  const ModelInfo& model = *state_.model;
  if (model.losses.empty()) {
    misuse(
        "the model has no loss, so a step would train nothing: let it end with a layer that adds a loss, such as nn.lm_loss or "
        "zt.loss(fn); without a loss there is trainer:infer");
  }
  if (std::ranges::none_of(model.params, &ParamInfo::trainable))
    misuse("all parameters of the model are frozen, so a step would train nothing: freeze fewer, or use trainer:evaluate");
}

void ProgramRuns::begin(std::vector<Batch> micro_batches, const Executor& running) {
  if (running.program().mode == Mode::train) check_objective();
  parts().scale.begin_whole();
  state_.loss = state_.grad_norm = std::numeric_limits<double>::quiet_NaN();
  const int64_t first_sample = plan_->first_sample(samples_of(micro_batches));
  layers_->begin(std::move(micro_batches), running.program(), first_sample);
  is_begun_ = true;
  if (running.program().mode == Mode::train) has_partial_gradients_ = true;
}

void ProgramRuns::begin_by_hand(const Executor& running) {
  begin({}, running);
  parts().scale.begin_by_hand(static_cast<double>(running.program().micro_batches) * plan_->data_ranks());
}

Counts ProgramRuns::set_micro_batch(int index, const Batch& batch) {
  const int64_t samples = samples_of(batch);
  const int64_t first = plan_->first_sample(samples) * parts().batches.count() + index * samples;
  parts().batches.set(index, batch, first);
  const Counts counts = parts().batches.counts(index);
  parts().scale.set_micro_batch(counts);
  return counts;
}

void ProgramRuns::end_step() {
  parts().batches.clear();
  has_partial_gradients_ = false;
}

}  // namespace zt
