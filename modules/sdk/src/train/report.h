// Reports on a trainer for people: its memory by kind, and a text.
#pragma once

#include "plan/plan.h"
#include "zt/train/trainer.h"

namespace zt {

class Report {
 public:
  explicit Report(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)) {}

  // Returns the peak of the bytes that a step over these micro-batches allocates, and keeps what it sends: for `memory` and
  // `text`.
  int64_t predict_activations(const std::vector<Batch>& micro_batches);
  // Returns a line for each kind and the total. `measured`: bytes by kind, empty for a dry trainer. `shapes`: as
  // Runner::shapes(); if it is not empty, activations are predicted for it.
  std::vector<MemoryLine> memory(const std::map<std::string, int64_t>& measured, const std::vector<Batch>& shapes);
  // `memory`: the lines of `memory()`. What layers send is known after a prediction.
  std::string text(const std::vector<MemoryLine>& memory) const;

 private:
  std::string wire_text() const;
  std::string given_up_text() const;

  std::shared_ptr<const Plan> plan_;
  std::vector<Batch> predicted_for_;
  TierBytes predicted_away_;             // of activations that are away at the same time
  int64_t predicted_ = -1;               // activations of a step over such micro-batches; -1: not known
  std::map<std::string, int64_t> sent_;  // in such a step, by kind of action or layer
};

}  // namespace zt
