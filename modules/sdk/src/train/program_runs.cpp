#include "program_runs.h"

#include <algorithm>
#include <limits>

#include "execute/movement/move_slices.h"
#include "memory_check.h"
#include "plan/plan_links.h"
#include "zt/base/error.h"
#include "zt/execute/resource_check.h"

namespace zt {

namespace {

std::shared_ptr<Updater> updater_of(const StepState& state, const std::shared_ptr<const Optimizer>& optimizer) {
  return optimizer ? std::make_shared<Updater>(optimizer, state) : nullptr;
}

// Throws Misuse if a training step could train nothing.
void check_objective(const ModelInfo& model) {
  if (model.losses.empty()) {
    misuse(
        "the model has no loss, so a step would train nothing: let it end with a layer that adds a loss, such as nn.lm_loss or "
        "zt.loss(fn); without a loss there is trainer:infer");
  }
  if (std::ranges::none_of(model.params, &ParamInfo::trainable))
    misuse("all parameters of the model are frozen, so a step would train nothing: freeze fewer, or use trainer:evaluate");
}

}  // namespace

StepFailure describe_failure(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const PeerFailed& error) {
    return {error.what(), true};
  } catch (const std::exception& error) {
    return {describe(error)};
  }
}

ProgramRuns::ProgramRuns(std::shared_ptr<const Plan> plan, Store& store, std::shared_ptr<const Optimizer> optimizer, Trace& trace)
    : plan_(std::move(plan)),
      state_(store.state()),
      trace_(trace),
      layers_(std::make_shared<LayerRuns>(plan_->program().model(), state_, positions_run(plan_->main(), plan_->model()))),
      handlers_(step_handlers(layers_, updater_of(state_, optimizer))) {
  const bool checks = checks_resources();
  const auto checked = [&](KindId id, const std::shared_ptr<ActionHandler>& handler) {
    const bool is_checked = checks && kind(id).role != Role::transfer;  // to wait for a send at once could take for ever
    return is_checked ? with_resource_check(handler) : handler;
  };
  for (const auto& pass : plan_->program().passes()) {
    for (const auto& [id, handler] : pass->handlers()) {
      if (!handlers_.emplace(id, checked(id, handler)).second)
        misuse("the pass {} brings a handler for {}, which has one already", pass->name(), kind(id).name);
    }
  }
  std::map<KindId, std::string> replaced;  // by which pass
  for (const auto& pass : plan_->program().passes()) {
    for (const auto& [id, handler] : pass->replacements()) {
      const auto [by, is_first] = replaced.emplace(id, pass->name());
      if (!is_first)
        misuse("the passes {} and {} both replace what {} does: apply one of them", by->second, pass->name(), kind(id).name);
      const auto known = handlers_.find(id);
      if (known == handlers_.end())
        misuse("the pass {} replaces what {} does, which no pass brings: apply the pass that inserts it, such as zero.shard",
               pass->name(), kind(id).name);
      known->second = checked(id, handler);
    }
  }
}

// If a work has failed, the data that it was to move or to sum are lost.
void ProgramRuns::drain() {
  if (running_) health_.guard([this] { running_->drain(); });
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

void ProgramRuns::begin(std::vector<Batch> micro_batches, const Executor& running) {
  if (running.program().mode == Mode::train) check_objective(*state_.model);
  parts().scale.begin_whole();
  state_.squares = {};
  state_.norms_of_left.clear();
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
  parts().batches.check(index, Mode::train);
  const Counts counts = parts().batches.counts(index);
  parts().scale.set_micro_batch(counts);
  return counts;
}

void ProgramRuns::end_step() {
  parts().batches.clear();
  has_partial_gradients_ = false;
}

std::exception_ptr with_advice(const std::exception_ptr& failure, const Plan& plan) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) return failure;
    return std::make_exception_ptr(OutOfMemory(describe(error) + ". " + memory_advice(plan, Lacking::values)));
  }
}

void rethrow_with(const std::exception_ptr& failure, const std::string& more) {
  if (more.empty()) std::rethrow_exception(failure);
  try {
    std::rethrow_exception(failure);
  } catch (const Misuse& error) {
    throw Misuse(error.what() + more);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(error.what() + more);
  } catch (const std::exception& error) {
    throw Error(describe(error) + more);
  }
}

void ProgramRuns::compare(Mode mode, const std::vector<std::string>& axes, const Contribution& mine) const {
  try {
    sum_counts(state_.links->control(axes), {}, mine, mode, state_.step);
  } catch (const Misuse& error) {
    throw StepRefused(error.what());
  }
}

void ProgramRuns::ensure_same_step(const RankProgram& program) const {
  const std::vector<std::string> axes = axes_of_run(*plan_, program);
  if (axes.empty()) return health_.require_sound();
  std::optional<StepFailure> failure;
  if (!health_.half_changed().empty()) failure = StepFailure{health_.half_changed()};
  compare(program.mode, axes, {.trainer = state_.links->trainer(), .failure = failure});
}

void ProgramRuns::ensure_same_samples(const RankProgram& program) {
  const std::vector<std::string> axes = axes_of_run(*plan_, program);
  if (!share_samples(state_.links->place(), axes)) return;
  compare(program.mode, axes, contribution_of(state_, axes, parts().batches, program.mode));
}

void ProgramRuns::refuse_together(const RankProgram& program, const std::function<void()>& body) {
  const auto axes = axes_of_run(*plan_, program);
  try {
    run_together(axes.empty() ? nullptr : &state_.links->control(axes), body);
  } catch (const Fault&) {
    throw;
  } catch (const std::exception&) {
    try {
      std::rethrow_exception(with_advice(std::current_exception(), *plan_));
    } catch (const std::exception& error) {
      throw StepRefused(describe(error));
    }
  }
}

void ProgramRuns::agree_on_failure(const RankProgram& program) {
  const std::vector<std::string> axes = axes_of_run(*plan_, program);
  if (axes.empty()) return;
  state_.known_failure = find_failure(state_.links->control(axes), state_.failure);
}

void ProgramRuns::attempt(Executor& running, int first, const Rescue& rescue, const std::function<void()>& body) {
  state_.failure.reset();
  state_.known_failure.clear();
  state_.is_finite = true;
  is_begun_ = rescue.is_begun;
  running.seek(first);
  const auto exponent = parts().scale.exponent;
  std::exception_ptr failure;
  try {
    const Health::Busy busy(health_);
    health_.guard(body);
  } catch (const Fault&) {
    throw;
  } catch (const StepRefused&) {
    if (running.next() == first) throw;
    failure = std::current_exception();
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) failure = with_advice(failure, *plan_);
  if (!failure && state_.known_failure.empty()) return;
  parts().scale.exponent = exponent;
  fail(running, failure, rescue);
}

// Waits for all works in flight, whether they fail or not. Then gives up the data that were brought to memory.
static void settle(Executor& running, StepState& state) {
  for (bool is_done = false; !is_done;) {
    try {
      running.drain();
      is_done = true;
    } catch (const Fault&) {
      throw;
    } catch (const std::exception&) {  // the first failure is the one that is reported
    }
  }
  drop_slices(state);
}

// `failure`: null if only other ranks have failed.
void ProgramRuns::fail(Executor& running, const std::exception_ptr& failure, const Rescue& rescue) {
  std::string more = rescue.advice;
  if (failure) {
    state_.failure = describe_failure(failure);
    if (!is_begun_) begin({}, running);
    const bool is_half_updated = has_changed(running);
    const std::string text = state_.failure->text;
    try {
      if (rescue.join) rescue.join();
      else running.join_rest(state_);
    } catch (const StepRefused&) {  // the other ranks have learnt of the failure at COUNT
      state_.known_failure.clear();
    } catch (const Fault& error) {
      health_.lose(text);
      fault("{}; after this the rank could not take part in the rest of the step, so the trainer cannot be used any more: {}",
            text, error.what());
    }
    if (is_half_updated) {
      health_.set_half_updated(state_.step, text);
      more = fmt::format("; step {} failed when ranks may have changed parameters: load a checkpoint before anything else",
                         state_.step);
    }
  }
  health_.guard([&] { settle(running, state_); });
  begin({}, running);  // frees batch, values and graphs
  const bool is_of_peer = !failure || state_.failure->is_of_peer;
  state_.failure.reset();
  if (is_of_peer && !state_.known_failure.empty()) throw Misuse(state_.known_failure + more);
  rethrow_with(failure, more);
}

// Whether an action that has run, or the one that failed, changes what outlives a step. After NORM the other ranks do so.
bool ProgramRuns::has_changed(const Executor& running) const {
  const auto& actions = running.program().actions;
  const int end = std::min(running.next() + 1, static_cast<int>(actions.size()));
  if (!state_.is_finite || running.program().mode != Mode::train) return false;
  const auto norm = std::ranges::find(actions, Kinds::get().norm, &Action::kind);
  if (!axes_of_run(*plan_, running.program()).empty() && norm - actions.begin() < running.next()) return true;
  return std::any_of(actions.begin(), actions.begin() + end, [&](const Action& action) {
    const bool makes_values = role_of(action) != Role::residency;  // not only present or current
    return std::ranges::any_of(resources_of(action, *state_.model).writes, [&](const Resource& written) {
      const bool is_saved = !type_of(written.type).saved_as.empty() && role_of(action) != Role::movement;
      return is_saved || (written.type == resource::param && makes_values);
    });
  });
}

}  // namespace zt
