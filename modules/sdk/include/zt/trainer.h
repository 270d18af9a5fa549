// Holds a model's buffers and runs its programs: training steps, evaluation, inference.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "zt/allocation.h"
#include "zt/executor.h"
#include "zt/object.h"
#include "zt/optimizer.h"
#include "zt/program_spec.h"
#include "zt/stateful.h"
#include "zt/trace.h"

namespace zt {

enum class OnNonfinite : uint8_t { error, skip };

struct TrainerOptions {
  std::shared_ptr<Optimizer> optimizer;
  std::shared_ptr<Schedule> schedule;  // nullptr: the optimizer's rate throughout
  double clip = 0;                     // maximum gradient norm; 0: off
  OnNonfinite on_nonfinite = OnNonfinite::error;
  bool dry = false;  // allocate nothing: reports only
};

struct StepResult {
  int64_t step = 0;  // 0-based number of the step that this was
  double loss = 0;   // the objective over the global batch, equal on every rank
  double grad_norm = 0;
  double lr = 0;
  int64_t tokens = 0;  // valid tokens of the global batch
  int64_t samples = 0;
  double seconds = 0;
  bool skipped = false;  // not finite, and on_nonfinite = skip
  std::vector<LossTerm> terms;
};

// Bytes of one kind on this rank; measured is -1 where only a prediction exists, predicted -1 the other way round.
// "activations" are all tensors made within a step (values kept for the backward, temporaries), at the last step's peak.
struct MemoryLine {
  std::string kind;
  int64_t predicted = -1;
  int64_t measured = -1;
};

class ComputeState;
struct Normalisation;
struct SharedSlots;

// Invariants: (1) the units' buffers never move while the trainer lives; (2) a Param's `values` is a view into them;
// (3) between calls all parameters are current on every rank once `drain` was called.
// Threads: the rank's thread only. Calls are collective over the program's mesh.
class Trainer : public Stateful {
 public:
  // Builds and verifies the programs of all ranks, then allocates and initialises. Misuse, equal on all ranks, with the
  // verifier's refusals.
  static std::shared_ptr<Trainer> make(std::shared_ptr<ProgramSpec> spec, TrainerOptions options);
  ~Trainer() override;

  StepResult step(const Batch& batch);      // the rank's part of a global batch: a whole optimizer step
  StepResult evaluate(const Batch& batch);  // loss only
  // Forward in generate mode; the named outputs of the last position.
  std::map<std::string, at::Tensor> infer(const Batch& batch);

  // By hand: one micro-batch's forward (returns its mean loss), its backward, and after all of them the rest of the step.
  // Gradients are divided by micro-batches x data-parallel size, or by `divisor` if above 0.
  double forward(const Batch& micro_batch);
  void backward();
  StepResult finish_step(double divisor = 0);

  void drain();
  int64_t global_step() const { return state_.step; }
  void set_global_step(int64_t step) { state_.step = step; }

  // A copy of the full parameter or its last gradient (as accumulated; meaningful before the next step). Collective where it is
  // sharded: all ranks of its axis ask. Misuse with the nearest name.
  at::Tensor parameter(const std::string& name);
  at::Tensor gradient(const std::string& name);
  void set_parameter(const std::string& name, const at::Tensor& values);

  // For a person: model, actions by kind, bytes on the wire a step, bytes held by kind.
  std::string report() const;
  std::vector<MemoryLine> memory() const;
  Trace& trace() { return trace_; }
  const ProgramSpec& spec() const { return *spec_; }
  const StepState& state() const { return state_; }

  void visit(Visitor& visitor) override;

 private:
  enum class HandPhase : uint8_t { idle, forward_done };

  Trainer(std::shared_ptr<ProgramSpec> spec, TrainerOptions options);
  void verify_programs(Mode mode) const;
  void make_units();
  void find_slots();
  void allocate_units(const std::function<at::Tensor(int64_t)>& allocate);
  Executor& executor(Mode mode);
  Executor& activate(Mode mode);  // the mode's executor, after draining another's works
  void check_batch(const Batch& batch, int parts) const;
  int data_ranks() const;
  int64_t first_sample(const Batch& batch) const;
  void prepare_step();
  StepResult result(int64_t begin_ns) const;
  StepResult end_step(int64_t begin_ns);
  [[noreturn]] void report_nonfinite() const;
  int end_of_forwards(const Program& program, int from, int micro_batch) const;
  int end_of_backwards(const Program& program, int from, int micro_batch) const;
  int find_param(const std::string& name) const;
  at::Tensor gather(const Unit& unit, const at::Tensor& chunk) const;
  Resource buffer_of(const Resource& resource) const;
  int64_t predicted_parameters() const;
  int64_t predicted_gradients() const;
  Piece piece_of(int param, const at::Tensor& chunk) const;

  std::shared_ptr<ProgramSpec> spec_;
  TrainerOptions options_;
  Program training_;                    // this rank's training program
  std::vector<std::string> data_axes_;  // the axes over which the global batch is spread: those of COUNT
  StepState state_;
  Trace trace_;
  AllocationWatch activations_;
  std::shared_ptr<Normalisation> normalisation_;
  std::shared_ptr<ComputeState> compute_;
  std::shared_ptr<const SharedSlots> slots_;
  Executor::Handlers handlers_;
  std::map<Mode, std::unique_ptr<Executor>> executors_;
  Executor* running_ = nullptr;  // whose works may be in flight
  int64_t updates_done_ = 0;     // steps that were not skipped
  int hand_micro_batch_ = 0;     // micro-batches done by forward / backward
  int hand_action_ = 0;          // the next action of the training program, by hand
  HandPhase hand_phase_ = HandPhase::idle;
  Counts hand_counts_;
  double hand_loss_ = 0;  // sum of the micro-batches' losses so far
  int64_t hand_begin_ns_ = 0;
};

ZT_OBJECT(Trainer)

}  // namespace zt
