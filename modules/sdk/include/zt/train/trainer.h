// Holds a model's buffers and runs its programs: training steps, evaluation, inference.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/base/stateful.h"
#include "zt/execute/executor.h"
#include "zt/model/loss_scale.h"
#include "zt/model/optimizer.h"
#include "zt/plan/allocation.h"
#include "zt/process/trace.h"
#include "zt/process/world.h"
#include "zt/program/program_spec.h"

namespace zt {

enum class OnNonfinite : uint8_t { error, skip };

struct TrainerOptions {
  std::shared_ptr<Optimizer> optimizer = {};
  std::shared_ptr<Schedule> schedule = {};          // nullptr: the optimizer's rate throughout
  double clip = 0;                                  // maximum gradient norm; 0: off
  std::optional<OnNonfinite> on_nonfinite = {};     // error, but skip with a loss scale
  std::optional<LossScaleOptions> loss_scale = {};  // for fp16 parameters only, which have one anyway: dynamic
  bool dry = false;                                 // allocate nothing: reports only
};

struct StepResult {
  int64_t step = 0;                      // 0-based number of the step that this was
  double loss = 0;                       // the objective over the global batch, equal on every rank
  std::optional<double> grad_norm = {};  // before clipping; absent for an evaluation
  std::optional<double> lr = {};         // absent for an evaluation
  double loss_scale = 1;                 // the one it was run with
  int64_t tokens = 0;                    // valid tokens of the global batch
  int64_t samples = 0;
  double seconds = 0;
  bool skipped = false;  // not finite, and on_nonfinite = skip
  std::vector<LossTerm> terms;
};

// Bytes of one kind on this rank; measured is -1 where only a prediction exists, predicted -1 the other way round.
// "activations" are all tensors made within a step (values kept for the backward, temporaries), at the last step's peak; "total"
// is the sum of the others.
struct MemoryLine {
  std::string kind;
  int64_t predicted = -1;
  int64_t measured = -1;
};

class ComputeState;
struct Normalisation;
struct RankPlan;
struct RankUnits;
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
  StepResult evaluate(const Batch& batch);  // forwards only: no grad_norm, no lr
  // Forward in generate mode; the named outputs of the last position.
  std::map<std::string, at::Tensor> infer(const Batch& batch);

  // By hand: one micro-batch's forward (returns its mean loss), its backward, and after all of them the rest of the step.
  // Gradients are divided by micro-batches x data-parallel size, or by `divisor` if above 0.
  double forward(const Batch& micro_batch);
  void backward();
  StepResult finish_step(double divisor = 0);

  // The base learning rate of the following steps, instead of the schedule's; nullopt: by the schedule again. Misuse unless
  // finite and not negative.
  void set_lr(std::optional<double> lr);
  double loss_scale() const { return loss_scale_ ? loss_scale_->value() : 1; }

  void drain();
  int64_t global_step() const { return state_.step; }
  void set_global_step(int64_t step) { state_.step = step; }

  // Copies of full tensors, shape as the parameter's: a parameter as layers see it and as the optimizer does (the same unless the
  // optimizer's is more exact), its gradient, its optimizer state by name. Collective where they are sharded: all ranks of the
  // axis ask. Misuse with the nearest name.
  //
  // `gradient` returns the last step's gradient of the objective before clipping, in float32 or float64: over all parameters its
  // norm is StepResult::grad_norm. It depends on neither ranks, micro-batches nor loss scale. By hand, after the last backward
  // and before finish_step, it is the gradient of the mean over micro-batches and data-parallel ranks. Misuse while micro-batches
  // are missing.
  at::Tensor parameter(const std::string& name);
  at::ScalarType dtype(const std::string& name) const;  // of what parameter(name) gives
  const ParamInfo& param_info(const std::string& name) const;
  at::Tensor master(const std::string& name);
  at::Tensor gradient(const std::string& name);
  std::map<std::string, at::Tensor> optimizer_state(const std::string& name);
  // The same values on all ranks, or those of rank `from` of the mesh; any float type. Collective with `from`.
  void set_parameter(const std::string& name, const at::Tensor& values, std::optional<int> from = {});
  void set_optimizer_state(const std::string& name, const std::string& state, const at::Tensor& values,
                           std::optional<int> from = {});

  // For a person: model, actions by kind, bytes on the wire a step, bytes held by kind.
  std::string report();
  std::vector<MemoryLine> memory();
  // What the ranks of the mesh do, hold and send, as a list of the kinds of rank that there are: {ranks = "0-511", count, memory,
  // actions, sent}, bytes by kind. `batch`: what each would be given; activations are predicted for it.
  Value plan(const Batch& batch);
  // The peak of the bytes that a step over such a batch allocates: its forwards and backwards on tensors without memory. Misuse,
  // naming the layer, where an operator does not know such tensors.
  int64_t predict_activations(const Batch& batch);
  Trace& trace() { return trace_; }
  const ProgramSpec& spec() const { return *spec_; }
  const StepState& state() const { return state_; }

  void visit(Visitor& visitor) override;

 private:
  enum class HandPhase : uint8_t { idle, forward_done };

  Trainer(std::shared_ptr<ProgramSpec> spec, TrainerOptions options);
  std::shared_ptr<const Program> verified_program(Mode mode) const;
  const Program& program(Mode mode) const { return *programs_[static_cast<size_t>(mode)]; }
  void check_units_alike() const;
  void check_gemm_alike() const;
  void make_units();
  std::map<std::string, int64_t> measure() const;
  RankUnits describe_rank(const Coord& coord) const;
  void allocate_units(const std::function<at::Tensor(int64_t, at::ScalarType)>& allocate);
  Executor& executor(Mode mode);
  Executor& activate(Mode mode);  // the mode's executor, after draining another's works
  void meet(const Program& program) const;
  void check_batch(const Batch& batch, int parts) const;
  int data_ranks() const;
  double hand_parts() const;
  int64_t first_sample(const Batch& batch) const;
  void gather_parameters();
  Communicator& axis_of(const Unit& unit) const;
  World place() const;  // for messages
  void prepare_step();
  void note_shapes(const Batch& batch, int times = 1);
  StepResult result(int64_t begin_ns) const;
  StepResult end_step(int64_t begin_ns);
  void skip_step();
  std::string place_of_nonfinite();
  int64_t run_on_meta(const Program& program, const RankUnits& held, const Batch& fields);
  int64_t run_on_meta(Mode mode, const Batch& fields);
  bool is_by_hand_under_way() const { return hand_micro_batch_ != 0 || hand_phase_ != HandPhase::idle; }
  void await_readers() const;
  Counts begin_hand_micro_batch(int micro_batch);
  int end_of_forwards(const Program& program, int from, int micro_batch) const;
  int end_of_backwards(const Program& program, int from, int micro_batch) const;
  int find_param(const std::string& name) const;
  at::Tensor whole(int param, const at::Tensor& chunk) const;
  at::Tensor agree(int param, const at::Tensor& values, std::optional<int> from) const;
  void set_owned(int param, const at::Tensor& chunk, const at::Tensor& values) const;
  Resource buffer_of(const Resource& resource) const;
  Piece piece_of(int param, const at::Tensor& chunk) const;

  std::shared_ptr<ProgramSpec> spec_;
  TrainerOptions options_;
  std::array<std::shared_ptr<const Program>, kModes.size()> programs_;  // this rank's, by mode
  std::vector<std::string> data_axes_;  // the axes over which the global batch is spread: those of COUNT
  StepState state_;
  Trace trace_;
  AllocationWatch activations_;
  std::shared_ptr<Normalisation> normalisation_;
  std::shared_ptr<ComputeState> compute_;
  std::shared_ptr<const SharedSlots> slots_;
  std::shared_ptr<const RankPlan> plan_;
  int64_t predicted_activations_ = -1;  // for the batch they were asked for last; -1: for none
  Batch shapes_;                        // the last step's batch on meta, until activations are predicted for it
  Executor::Handlers handlers_;
  std::map<Mode, std::unique_ptr<Executor>> executors_;
  Executor* running_ = nullptr;  // whose works may be in flight
  int64_t updates_done_ = 0;     // steps that were not skipped
  std::optional<LossScale> loss_scale_;
  std::optional<double> lr_;  // instead of the schedule's
  std::vector<Batch> given_;  // what the current step was given: one batch, or by hand its micro-batches
  int hand_micro_batch_ = 0;  // micro-batches done by forward / backward
  int hand_action_ = 0;       // the next action of the training program, by hand
  HandPhase hand_phase_ = HandPhase::idle;
  Counts hand_counts_;
  double hand_loss_ = 0;  // sum of the micro-batches' losses so far
  int64_t hand_begin_ns_ = 0;
};

ZT_OBJECT(Trainer)

}  // namespace zt
