// Runs whole steps: training, evaluation, inference.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "program_runs.h"
#include "step_control.h"
#include "zt/plan/allocation.h"

namespace zt {

using Outputs = std::map<std::string, at::Tensor>;  // of the model's last position, by name

// Threads: the rank's thread only. All functions that run actions are collective over the mesh.
class Runner {
 public:
  Runner(std::shared_ptr<const Plan> plan, ProgramRuns& runs, StepControl& control)
      : plan_(std::move(plan)), runs_(runs), state_(runs.state()), control_(control) {}

  // As Trainer's.
  StepResult step(const StepBatch& batch, const UpdateIf& update_if = {});
  using Call = std::function<void(Executor&)>;
  // Calls `run` to run the program, and `join` to take part in its rest after a failure; without it Executor::join_rest.
  StepResult step(const StepBatch& batch, const Call& run, const Call& join = {});
  StepResult evaluate(const StepBatch& batch);
  Outputs infer(const StepBatch& batch);
  Value infer(const StepBatch& batch, const ReduceOutputs& reduce, KvCache* cache);
  // As Trainer's.
  std::map<std::string, at::Tensor> input_gradients(const StepBatch& batch);
  // Counts the training step that has run, or reports what was not finite.
  StepResult finish_step(int64_t begin_ns);

  // Notes the shapes of a training step's micro-batches.
  void note_shapes(const std::vector<Batch>& micro_batches);
  // The last training step's micro-batches, on device meta; empty before the first.
  const std::vector<Batch>& shapes() const { return shapes_; }
  // The peak of the bytes that tensors made within a step over such shapes; -1 before the first one by `step`.
  int64_t activation_bytes() const { return is_measured_ ? activations_.peak_bytes() : -1; }
  void visit_values(Visitor& visitor);

 private:
  Outputs own_outputs(const StepBatch& batch, KvCache* cache = nullptr);
  Outputs run_inference(const StepBatch& batch, Executor& running);
  StepResult result(int64_t begin_ns) const;
  std::map<std::string, at::Tensor> joined_gradients(const std::vector<Batch>& micro_batches);
  void skip_step();

  std::shared_ptr<const Plan> plan_;
  ProgramRuns& runs_;
  StepState& state_;
  StepControl& control_;
  AllocationWatch activations_;
  std::vector<Batch> shapes_;
  bool is_measured_ = false;  // activations_ has seen a step over shapes_
  bool is_declined_ = false;  // the step's numbers are finite, and UpdateIf wants no update
};

// Runs the forwards and backwards of the step that has just ended once more and returns the first loss or gradient that is not
// finite, in words; empty if there is none. Collective over the axes of NORM, whose ranks know that something is not finite.
std::string find_nonfinite(ProgramRuns& runs, const Plan& plan);

}  // namespace zt
