#include "by_hand.h"

#include <ATen/ops/full.h>

#include <algorithm>

#include "execute/counts.h"
#include "options_check.h"
#include "plan/plan_links.h"
#include "zt/base/error.h"

namespace zt {

namespace {

// Returns the index after the last forward of `micro_batch` that follows `from`, where only actions that move
// parameters may stand in between; `from` if there is none.
int end_of_forwards(const RankProgram& program, int from, int micro_batch) {
  const KindId forward = Kinds::get().forward;
  const int n = static_cast<int>(program.actions.size());
  int end = from;
  for (int i = from; i < n; ++i) {
    const Action& action = program.actions[i];
    if (action.kind == forward && action.micro_batch == micro_batch) end = i + 1;
    else if (role_of(action) != Role::residency && role_of(action) != Role::movement) break;
  }
  return end;
}

// Returns the first action at or after `from` that belongs to the next micro-batch or to the end of the step.
int end_of_backwards(const RankProgram& program, int from, int micro_batch) {
  const Kinds& kinds = Kinds::get();
  const int n = static_cast<int>(program.actions.size());
  for (int i = from; i < n; ++i) {
    const Action& action = program.actions[i];
    if (action.kind == kinds.norm || action.kind == kinds.forward) return i;
    if (action.micro_batch >= 0 && action.micro_batch != micro_batch) {
      misuse(
          "this program interleaves micro-batches (action {}: {}), so forward and backward cannot run one by one: use "
          "trainer:step(batch)",
          i, action_text(action));
    }
  }
  return n;
}

// Returns whether the actions only run layers, without communication: then what they have done can be dropped.
bool is_local_compute(const RankProgram& program, int begin, int end, const ModelInfo& model) {
  return std::all_of(program.actions.begin() + begin, program.actions.begin() + end, [&](const Action& action) {
    return role_of(action) == Role::compute && communicators_of(action, model).empty();
  });
}

}  // namespace

void ByHand::refuse(const char* call) {
  if (is_under_way()) misuse("{}: forward / backward by hand are under way: finish with trainer:finish_step() first", call);
  is_open_ = false;
}

void ByHand::refuse_gradient() const {
  const int all = plan_->program().micro_batches();
  if (phase_ == Phase::idle && (micro_batch_ == 0 || micro_batch_ == all)) return;
  misuse(
      "trainer:gradient: forward / backward by hand are under way, {} of {} micro-batches are done: ask after the last backward",
      micro_batch_, all);
}

// All ranks make sure once that they begin the same step.
void ByHand::open(const RankProgram& program) {
  if (is_open_) return;
  runs_.ensure_same_step(program);
  is_open_ = true;
  are_counts_shared_ = false;
  action_ = program.actions.empty() || program.actions[0].kind != Kinds::get().count ? 0 : 1;
}

void ByHand::begin_step(const Batch& micro_batch, const Executor& running) {
  const int micro_batches = plan_->program().micro_batches();
  StepState& state = runs_.state();
  control_.prepare(state);
  state.grad_divisor = static_cast<double>(micro_batches) * plan_->data_ranks() * state.loss_scale;
  runner_.note_shapes(std::vector<Batch>(static_cast<size_t>(micro_batches), micro_batch));
  runs_.begin_by_hand(running);
  counts_ = {};
  loss_ = 0;
  begin_ns_ = now_ns();
}

void ByHand::close() {
  micro_batch_ = 0;
  phase_ = Phase::idle;
  is_open_ = false;
}

// Calls `body`, which runs actions. If it fails, takes part in the rest of the step, which is over then.
void ByHand::attempt(Executor& running, const std::function<void()>& body) {
  const auto join = [&] {
    const auto& actions = running.program().actions;
    const auto norm = std::ranges::find(actions, Kinds::get().norm, &Action::kind);
    running.join_rest(runs_.state(), static_cast<int>(norm - actions.begin()));
    share_counts();
    running.join_rest(runs_.state());
  };
  try {
    runs_.attempt(
        running, action_,
        {.join = join,
         .advice = "; nothing was changed, and this step by hand is over: begin it again with its first trainer:forward",
         .is_begun = micro_batch_ > 0 || phase_ == Phase::forward_done},
        body);
  } catch (...) {
    close();
    throw;
  }
}

// Sums the counts over the ranks, once per step. Ignores that a rank has failed if it is this one.
void ByHand::share_counts() {
  if (std::exchange(are_counts_shared_, true)) return;
  StepState& state = runs_.state();
  state.counts = counts_;
  const auto& actions = plan_->main().actions;
  const auto count = std::ranges::find(actions, Kinds::get().count, &Action::kind);
  const auto axes = count == actions.end() ? std::vector<std::string>() : count->axes();
  if (axes.empty()) return;
  try {
    Contribution mine = contribution_of(state, axes, runs_.parts().batches, Mode::train);
    mine.divisor = state.grad_divisor;
    mine.rows = samples_of(runs_.parts().batches.all());
    state.counts = sum_counts(state.links->control(axes), counts_, mine, Mode::train, state.step);
  } catch (const PeerFailed&) {
    if (!state.failure) throw;
  }
}

double ByHand::forward(const Batch& micro_batch) {
  runs_.health().require_alive();
  require_adapters(runs_.state(), "trainer:forward");
  if (phase_ == Phase::forward_done) misuse("trainer:forward was called twice: call trainer:backward between");
  Executor& running = runs_.activate(Mode::train);
  const RankProgram& program = running.program();
  if (const auto& split = program.split_axes; !split.empty()) {
    misuse("ranks along '{}' run different positions, so forward and backward cannot run one by one: use trainer:step(batch)",
           fmt::join(split, "', '"));
  }
  if (const int all = plan_->program().micro_batches(); micro_batch_ == all)
    misuse("all {} micro-batches of this step are done: call trainer:finish_step()", all);
  open(program);
  const int end = end_of_forwards(program, action_, micro_batch_);
  if (end == action_) {
    misuse(
        "this program does not run the forwards of micro-batch {} in one piece, so forward and backward cannot run one by one: "
        "use trainer:step(batch)",
        micro_batch_);
  }
  Counts counts;
  const auto take = [&] { counts = give(micro_batch, running); };
  const auto compute = [&] { running.run(runs_.state(), action_, end); };
  if (plan_->model().communicates_within_layers()) {  // in which a rank that has failed could not take part
    or_as_before("; nothing was changed: call trainer:forward once more, on all ranks, with a micro-batch that is right", [&] {
      runs_.refuse_together(program, take);
      runs_.ensure_same_samples(program);
    });
    attempt(running, [&] {
      compute();
      note_forward(counts);
    });
  } else if (is_local_compute(program, action_, end, plan_->model())) {
    or_as_before(
        "; nothing was changed: call trainer:forward once more, with a micro-batch that is right. The other ranks know nothing of "
        "this and wait for it",
        [&] {
          take();
          compute();
          note_forward(counts);
        });
  } else {
    attempt(running, [&] {
      take();
      compute();
      note_forward(counts);
    });
  }
  action_ = end;
  phase_ = Phase::forward_done;
  return micro_batch_loss_;
}

// Returns the communicator over the ranks with other tokens of this rank's samples; null if there are none.
Communicator* ByHand::beside_tokens() const {
  const Links& links = *runs_.state().links;
  const auto& axes = links.place().token_axes;
  return plan_->program().coord().size(axes) > 1 ? &links.control(axes) : nullptr;
}

// Returns the loss of the last micro-batch, of which ranks with other tokens of its samples have parts.
double ByHand::sum_over_tokens() {
  double total = 0;
  for (const LossSum& term : runs_.parts().stats.losses()) total += term.sum;
  const at::Tensor mine = at::full({1}, total - loss_, at::kDouble);
  loss_ = total;
  if (Communicator* others = beside_tokens()) others->all_reduce(mine, mine).synchronize();
  return mine.item<double>();
}

// Takes the fields of the next micro-batch. Returns what its layers count.
Counts ByHand::give(const Batch& micro_batch, const Executor& running) {
  check_batch(micro_batch);
  if (micro_batch_ == 0) begin_step(micro_batch, running);
  return runs_.set_micro_batch(micro_batch_, micro_batch);
}

// Adds up what a forward has counted and its loss.
void ByHand::note_forward(const Counts& counts) {
  micro_batch_loss_ = sum_over_tokens();
  counts_.tokens += counts.tokens;
  counts_.samples += counts.samples;
}

// Calls `body`, which runs a part of a forward. If it fails, the trainer is as before the call, and the error says so by
// `advice`.
void ByHand::or_as_before(const char* advice, const std::function<void()>& body) {
  try {
    const Health::Busy busy(runs_.health());
    runs_.health().guard(body);
  } catch (const Fault&) {
    throw;
  } catch (...) {
    if (micro_batch_ > 0) runs_.layers().discard(micro_batch_);
    rethrow_with(with_advice(std::current_exception(), *plan_), advice);
  }
}

void ByHand::backward() {
  runs_.health().require_alive();
  if (phase_ != Phase::forward_done) misuse("trainer:backward needs a trainer:forward(batch) before it");
  Executor& running = runs_.activate(Mode::train);
  const int end = end_of_backwards(running.program(), action_, micro_batch_);
  attempt(running, [&] { running.run(runs_.state(), action_, end); });
  action_ = end;
  phase_ = Phase::idle;
  ++micro_batch_;
}

void ByHand::check_divisor() const {
  for (const auto& pass : plan_->program().passes()) {
    if (pass->fixes_divisor())
      misuse(
          "trainer:finish_step{{divisor =}}: the pass {} has added what it kept to gradients with the default divisor: leave it out, "
          "and multiply the losses",
          pass->name());
  }
}

StepResult ByHand::finish_step(double divisor) {
  runs_.health().require_alive();
  if (phase_ == Phase::forward_done) misuse("trainer:backward() is missing after the last trainer:forward(batch)");
  if (const int all = plan_->program().micro_batches(); micro_batch_ != all)
    misuse("{} of {} micro-batches were run forward and backward: a step needs all of them", micro_batch_, all);
  Executor& running = runs_.activate(Mode::train);
  StepState& state = runs_.state();
  if (divisor > 0 && divisor * state.loss_scale != state.grad_divisor) check_divisor();
  attempt(running, [&] {
    if (divisor > 0) state.grad_divisor = divisor * state.loss_scale;
    share_counts();
    running.run(state, action_);
  });
  close();
  return runner_.finish_step(begin_ns_);
}

// Returns what the actions of a program work with.
static std::set<TrainerData> data_of(const RankProgram& program, const ModelInfo& model) {
  if (program.mode == Mode::train) return kAllTrainerData;
  std::set<TrainerData> used{TrainerData::parameters};
  for (const Action& action : program.actions) {
    if (action.kind == Kinds::get().norm) continue;  // without gradients, it adds losses
    const Resources declared = resources_of(action, model);
    for (const auto* list : {&declared.reads, &declared.writes}) {
      for (const Resource& resource : *list) {
        const auto data = unit_data_of(resource, program.precision);
        if (data == UnitData::state || type_of(resource.type).is_of_pass) used.insert(TrainerData::optimizer);
        if (data == UnitData::grads) used.insert(TrainerData::gradients);
      }
    }
  }
  return used;
}

void TrainerRuns::require_ready(const char* call, const Plan& plan, Mode mode) {
  by_hand.refuse(call);
  if (mode == Mode::train) require_adapters(runs.state(), call);
  if (!runs.health().away().empty()) runs.health().require_here(call, data_of(plan.rank_program(mode), plan.model()));
}

}  // namespace zt
