// forward / backward / finish_step: one micro-batch at a time, in the training program's own order.
#pragma once

#include "runner.h"

namespace zt {

class ByHand {
 public:
  ByHand(std::shared_ptr<const Plan> plan, Runner& runner) : plan_(std::move(plan)), runner_(runner) {}

  // As Trainer's functions of these names.
  double forward(const Batch& micro_batch);
  void backward();
  StepResult finish_step(double divisor);

  // Throws Misuse while a step by hand is under way: `call` would lose its values, gradients and losses so far.
  void refuse(const char* call) const;
  // Throws Misuse between the first forward and the last backward: to look at a gradient completes its sum, and later backwards
  // would start a new one.
  void refuse_gradient() const;

 private:
  enum class Phase : uint8_t { idle, forward_done };

  void begin_step(const Batch& micro_batch, const Program& program);
  double parts() const;
  bool is_under_way() const { return micro_batch_ != 0 || phase_ != Phase::idle; }

  std::shared_ptr<const Plan> plan_;
  Runner& runner_;
  int micro_batch_ = 0;  // micro-batches that are done
  int action_ = 0;       // the next action of the training program
  Phase phase_ = Phase::idle;
  Counts counts_;    // of this rank's micro-batches so far
  double loss_ = 0;  // sum of the micro-batches' losses so far
  int64_t begin_ns_ = 0;
};

}  // namespace zt
