#include "by_hand.h"

#include "zt/base/error.h"

namespace zt {

namespace {

bool is_kind(const Program& program, int index, KindId id) {
  return program.actions[index].kind == id;
}

// Returns the index after the last forward of `micro_batch` that follows `from`, where only actions that move
// parameters may stand in between; `from` if there is none.
int end_of_forwards(const Program& program, int from, int micro_batch) {
  const KindId forward = Kinds::get().forward;
  const int n = static_cast<int>(program.actions.size());
  int end = from;
  for (int i = from; i < n; ++i) {
    if (is_kind(program, i, forward) && program.actions[i].micro_batch == micro_batch) end = i + 1;
    else if (role_of(program.actions[i]) != Role::residency) break;
  }
  return end;
}

// Returns the first action at or after `from` that belongs to the next micro-batch or to the end of the step.
int end_of_backwards(const Program& program, int from, int micro_batch) {
  const Kinds& kinds = Kinds::get();
  const int n = static_cast<int>(program.actions.size());
  int i = from;
  while (i < n && !is_kind(program, i, kinds.norm) && !is_kind(program, i, kinds.forward)) {
    const Action& action = program.actions[i];
    if (action.micro_batch >= 0 && action.micro_batch != micro_batch) {
      misuse(
          "this program interleaves micro-batches (action {}: {}), so forward and backward cannot run one by one: use "
          "trainer:step(batch)",
          i, action_text(action));
    }
    ++i;
  }
  return i;
}

}  // namespace

void ByHand::refuse(const char* call) const {
  if (is_under_way())
    misuse("trainer:{}: forward / backward by hand are under way: finish with trainer:finish_step() first", call);
}

void ByHand::refuse_gradient() const {
  const int all = plan_->spec().micro_batches();
  if (phase_ == Phase::idle && (micro_batch_ == 0 || micro_batch_ == all)) return;
  misuse(
      "trainer:gradient: forward / backward by hand are under way, {} of {} micro-batches are done: ask after the last backward",
      micro_batch_, all);
}

// Returns the divisor of sums over the micro-batches of all data-parallel ranks.
double ByHand::parts() const {
  return static_cast<double>(plan_->spec().micro_batches()) * plan_->data_ranks();
}

void ByHand::begin_step(const Batch& micro_batch, const Program& program) {
  const int micro_batches = plan_->spec().micro_batches();
  StepState& state = runner_.state();
  runner_.control().prepare(state);
  state.grad_divisor = parts() * state.loss_scale;
  runner_.note_shapes(std::vector<Batch>(static_cast<size_t>(micro_batches), micro_batch));
  runner_.compute().begin({}, program, 0);
  action_ = program.actions.empty() || !is_kind(program, 0, Kinds::get().count) ? 0 : 1;
  counts_ = {};
  loss_ = 0;
  begin_ns_ = now_ns();
  runner_.ensure_same_step(program);
}

double ByHand::forward(const Batch& micro_batch) {
  check_batch(micro_batch);
  if (phase_ == Phase::forward_done) misuse("trainer:forward was called twice: call trainer:backward between");
  Executor& running = runner_.activate(Mode::train);
  if (const auto& split = running.program().split_axes; !split.empty()) {
    misuse("ranks along '{}' run different positions, so forward and backward cannot run one by one: use trainer:step(batch)",
           fmt::join(split, "', '"));
  }
  if (const int all = plan_->spec().micro_batches(); micro_batch_ == all)
    misuse("all {} micro-batches of this step are done: call trainer:finish_step()", all);
  if (micro_batch_ == 0) begin_step(micro_batch, running.program());
  runner_.normalisation().is_by_hand = true;
  std::vector<Batch>& given = runner_.given();
  given.resize(static_cast<size_t>(micro_batch_));  // a forward that failed has left its own
  given.push_back(micro_batch);
  const Counts counts = runner_.begin_micro_batch(micro_batch_);
  const int end = end_of_forwards(running.program(), action_, micro_batch_);
  if (end == action_) {
    misuse(
        "this program does not run the forwards of micro-batch {} in one piece, so forward and backward cannot run one by one: "
        "use trainer:step(batch)",
        micro_batch_);
  }
  running.run(runner_.state(), action_, end);
  action_ = end;
  phase_ = Phase::forward_done;
  counts_.tokens += counts.tokens;
  counts_.samples += counts.samples;
  double total = 0;
  for (const LossSum& term : runner_.compute().losses()) total += term.sum;
  const double mine = total - loss_;
  loss_ = total;
  return mine;
}

void ByHand::backward() {
  if (phase_ != Phase::forward_done) misuse("trainer:backward needs a trainer:forward(batch) before it");
  Executor& running = runner_.activate(Mode::train);
  const int end = end_of_backwards(running.program(), action_, micro_batch_);
  running.run(runner_.state(), action_, end);
  action_ = end;
  phase_ = Phase::idle;
  ++micro_batch_;
}

StepResult ByHand::finish_step(double divisor) {
  if (phase_ == Phase::forward_done) misuse("trainer:backward() is missing after the last trainer:forward(batch)");
  if (const int all = plan_->spec().micro_batches(); micro_batch_ != all)
    misuse("{} of {} micro-batches were run forward and backward: a step needs all of them", micro_batch_, all);
  Executor& running = runner_.activate(Mode::train);
  StepState& state = runner_.state();
  runner_.normalisation().loss_divisor = parts();
  if (divisor > 0) state.grad_divisor = divisor * state.loss_scale;
  state.counts = counts_;
  const auto& axes = plan_->data_axes();
  if (!axes.empty()) state.counts = sum_counts(state.control(axes), counts_, {}, Mode::train, state.step);
  micro_batch_ = 0;
  running.run(state, action_);
  return runner_.finish_step(begin_ns_);
}

}  // namespace zt
