// forward / backward / finish_step: one micro-batch at a time, in the training program's own order.
#include "execute/compute.h"
#include "execute/step_handlers.h"
#include "zt/base/error.h"
#include "zt/train/trainer.h"

namespace zt {

namespace {

bool is_kind(const Program& program, int index, KindId id) {
  return program.actions[index].kind == id;
}

}  // namespace

// Behind the last forward of micro-batch `micro_batch` that follows `from`, parameters coming and going between; `from` if none
// does.
int Trainer::end_of_forwards(const Program& program, int from, int micro_batch) const {
  const Kinds& kinds = Kinds::get();
  const int n = static_cast<int>(program.actions.size());
  int end = from;
  for (int i = from; i < n; ++i) {
    if (is_kind(program, i, kinds.forward) && program.actions[i].micro_batch == micro_batch) end = i + 1;
    else if (!is_kind(program, i, kinds.unshard) && !is_kind(program, i, kinds.reshard)) break;
  }
  return end;
}

// The first action at or after `from` that belongs to the next micro-batch or to the end of the step.
int Trainer::end_of_backwards(const Program& program, int from, int micro_batch) const {
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

// What was given for it becomes the batch; gradients start at those of its mean loss.
Counts Trainer::begin_hand_micro_batch(int micro_batch) {
  const Batch& batch = given_.at(static_cast<size_t>(micro_batch));
  const int64_t samples = batch.begin()->second.size(0);
  compute_->begin_micro_batch(batch, micro_batch, first_sample(batch) * spec_->micro_batches() + micro_batch * samples);
  const Counts counts = compute_->count();
  compute_->set_seeds({counts.tokens > 0 ? 1.0 / static_cast<double>(counts.tokens) : 0, 1.0 / static_cast<double>(samples)});
  return counts;
}

// Returns the divisor of sums over the micro-batches of all data-parallel ranks.
double Trainer::hand_parts() const {
  return static_cast<double>(spec_->micro_batches()) * data_ranks();
}

double Trainer::forward(const Batch& micro_batch) {
  check_batch(micro_batch, 1);
  if (hand_phase_ == HandPhase::forward_done) misuse("trainer:forward was called twice: call trainer:backward between");
  Executor& running = activate(Mode::train);
  const Program& program = running.program();
  if (hand_micro_batch_ == spec_->micro_batches()) {
    misuse("all {} micro-batches of this step are done: call trainer:finish_step()", spec_->micro_batches());
  }
  if (hand_micro_batch_ == 0) {
    prepare_step();
    state_.grad_divisor = hand_parts() * state_.loss_scale;
    note_shapes(micro_batch, spec_->micro_batches());
    compute_->begin(micro_batch, Mode::train, spec_->micro_batches(), 0);
    hand_action_ = program.actions.empty() || !is_kind(program, 0, Kinds::get().count) ? 0 : 1;
    hand_counts_ = {};
    hand_loss_ = 0;
    hand_begin_ns_ = now_ns();
    meet(running.program());
  }
  normalisation_->is_by_hand = true;
  given_.resize(static_cast<size_t>(hand_micro_batch_));  // a forward that failed has left its own
  given_.push_back(micro_batch);
  const Counts counts = begin_hand_micro_batch(hand_micro_batch_);
  const int end = end_of_forwards(program, hand_action_, hand_micro_batch_);
  if (end == hand_action_) {
    misuse(
        "this program does not run the forwards of micro-batch {} in one piece, so forward and backward cannot run one by one: "
        "use trainer:step(batch)",
        hand_micro_batch_);
  }
  running.run(state_, hand_action_, end);
  hand_action_ = end;
  hand_phase_ = HandPhase::forward_done;
  hand_counts_.tokens += counts.tokens;
  hand_counts_.samples += counts.samples;
  double total = 0;
  for (const LossSum& term : compute_->losses()) total += term.sum;
  const double mine = total - hand_loss_;
  hand_loss_ = total;
  return mine;
}

void Trainer::backward() {
  if (hand_phase_ != HandPhase::forward_done) misuse("trainer:backward needs a trainer:forward(batch) before it");
  Executor& running = activate(Mode::train);
  const int end = end_of_backwards(running.program(), hand_action_, hand_micro_batch_);
  running.run(state_, hand_action_, end);
  hand_action_ = end;
  hand_phase_ = HandPhase::idle;
  ++hand_micro_batch_;
}

StepResult Trainer::finish_step(double divisor) {
  if (hand_phase_ == HandPhase::forward_done) misuse("trainer:backward() is missing after the last trainer:forward(batch)");
  if (hand_micro_batch_ != spec_->micro_batches()) {
    misuse("{} of {} micro-batches were run forward and backward: a step needs all of them", hand_micro_batch_,
           spec_->micro_batches());
  }
  Executor& running = activate(Mode::train);
  normalisation_->loss_divisor = hand_parts();
  if (divisor > 0) state_.grad_divisor = divisor * state_.loss_scale;
  state_.counts = hand_counts_;
  if (!data_axes_.empty()) state_.counts = sum_counts(state_.comm(data_axes_), hand_counts_, Mode::train, state_.step);
  hand_micro_batch_ = 0;
  running.run(state_, hand_action_);
  return end_step(hand_begin_ns_);
}

}  // namespace zt
