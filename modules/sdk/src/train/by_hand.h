// forward / backward / finish_step: one micro-batch at a time, in the training program's own order.
#pragma once

#include "runner.h"

namespace zt {

class ByHand {
 public:
  ByHand(std::shared_ptr<const Plan> plan, ProgramRuns& runs, Runner& runner, const StepControl& control)
      : plan_(std::move(plan)), runs_(runs), runner_(runner), control_(control) {}

  // As Trainer's functions of these names.
  double forward(const Batch& micro_batch);
  void backward();
  StepResult finish_step(double divisor);

  // Throws Misuse while a step by hand is under way: `call` would lose its values, gradients and losses so far.
  void refuse(const char* call);
  // Throws Misuse between the first forward and the last backward: to look at a gradient completes its sum, and later backwards
  // would start a new one.
  void refuse_gradient() const;
  bool is_under_way() const { return micro_batch_ != 0 || phase_ != Phase::idle; }

 private:
  enum class Phase : uint8_t { idle, forward_done };

  void open(const RankProgram& program);
  void begin_step(const Batch& micro_batch, const Executor& running);
  void close();
  void attempt(Executor& running, const std::function<void()>& body);
  void share_counts();
  void check_divisor() const;
  Counts give(const Batch& micro_batch, const Executor& running);
  void note_forward(const Counts& counts);
  Communicator* beside_tokens() const;
  double sum_over_tokens();
  void or_as_before(const char* advice, const std::function<void()>& body);

  std::shared_ptr<const Plan> plan_;
  ProgramRuns& runs_;
  Runner& runner_;
  const StepControl& control_;
  bool is_open_ = false;            // all ranks have begun the step
  bool are_counts_shared_ = false;  // over the ranks
  int micro_batch_ = 0;             // micro-batches that are done
  int action_ = 0;                  // the next action of the training program
  Phase phase_ = Phase::idle;
  Counts counts_;                // of this rank's micro-batches so far
  double loss_ = 0;              // sum of this rank's parts of the micro-batches' losses so far
  double micro_batch_loss_ = 0;  // of the last micro-batch, of all its tokens
  int64_t begin_ns_ = 0;
};

// The parts of a trainer that run its programs.
struct TrainerRuns {
  TrainerRuns(const std::shared_ptr<const Plan>& plan, Store& store, std::shared_ptr<const Optimizer> optimizer, Trace& trace,
              StepControl& control)
      : runs(plan, store, std::move(optimizer), trace), runner(plan, runs, control), by_hand(plan, runs, runner, control) {}

  // Throws Misuse while a step by hand is under way, and if some of the data that the mode's program needs are out of memory.
  void require_ready(const char* call, const Plan& plan, Mode mode);

  ProgramRuns runs;
  Runner runner;
  ByHand by_hand;
};

}  // namespace zt
