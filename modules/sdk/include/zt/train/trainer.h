// Holds a model's buffers and runs its programs: training steps, evaluation, inference.
#pragma once

#include <functional>
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
#include "zt/process/trace.h"
#include "zt/program/program.h"
#include "zt/simulate/simulation.h"
#include "zt/train/phases.h"
#include "zt/train/tensors.h"

namespace zt {

enum class OnNonfinite : uint8_t { error, skip };

struct TrainerOptions {
  std::shared_ptr<Optimizer> optimizer = {};        // null: the trainer evaluates and infers, and holds parameters only
  std::shared_ptr<Schedule> schedule = {};          // null means the optimizer's rate in every step
  double clip = 0;                                  // maximum gradient norm; 0: off
  std::optional<OnNonfinite> on_nonfinite = {};     // by default `skip` with a loss scale, `error` without
  std::optional<LossScaleOptions> loss_scale = {};  // only for fp16 parameters, whose default is a dynamic loss scale
  bool dry = false;                                 // allocates nothing and runs nothing: for plans and reports
};

struct StepResult {
  int64_t step = 0;                      // 0-based number of this step
  double loss = 0;                       // the objective over the global batch, equal on every rank
  std::optional<double> grad_norm = {};  // before clipping; absent for an evaluation
  std::optional<double> lr = {};         // absent for an evaluation
  double loss_scale = 1;                 // the loss scale of this step
  int64_t tokens = 0;                    // valid tokens of the global batch
  int64_t samples = 0;
  double seconds = 0;
  bool skipped =
      false;  // nothing was updated: the loss, a statistic or the gradient was not finite, or the caller did not want it
  std::vector<LossTerm> terms;
  Stats stats = {};  // what LayerExtras::report shows, by "LAYER.NAME", over all micro-batches and ranks
};

// Bytes of one kind on this rank; -1 means not known. "activations" are all tensors made within a step (values kept for the
// backward, temporaries) at its peak, measured in the first step over a batch of these shapes. "total" is the sum of the others.
struct MemoryLine {
  std::string kind;
  int64_t predicted = -1;
  int64_t measured = -1;
};

// Makes a plain value of the named outputs of an inference.
using ReduceOutputs = std::function<Value(const std::map<std::string, at::Tensor>&)>;

// Decides between NORM and the updates of a step whether it makes any; is_finite: whether its losses and gradients are.
using UpdateIf = std::function<bool(bool is_finite)>;

class Plan;
class Report;
class StepControl;

// A thin face: each function checks whether it may be called now and hands over to one of the parts below.
//
// A trainer owns the values of its model: other trainers of the same model have their own. Without an optimizer it cannot run
// training steps.
//
// Invariants: (1) the tensors of units stay the same while the trainer lives; (2) between calls all parameters are current on
// every rank once `drain` was called. Threads: the rank's thread only. All calls are collective over the program's mesh, except
// those whose comments say that they are not.
class Trainer : public Stateful {
 public:
  // Builds and verifies the programs of all ranks, then allocates the buffers and gives the parameters their initial values.
  // Throws Misuse, equal on all ranks, with the verifier's refusals, or if the options do not fit the program.
  static std::shared_ptr<Trainer> make(std::shared_ptr<Program> program, TrainerOptions options);
  ~Trainer() override;

  // Returns whether it has an optimizer. Without one `step`, `costs` and the functions of a step by hand throw Misuse.
  bool trains() const;

  // Runs a whole optimizer step. `batch`: this rank's part of the global batch. Ranks that have different samples have equally
  // many. With `update_if`, nothing is updated if it returns false on a rank: the step counts as skipped, and the learning rate's
  // schedule and the loss scale stay where they are. If it throws on a rank, the step has failed on all.
  StepResult step(const StepBatch& batch, const UpdateIf& update_if = {});
  // Runs the forwards in evaluation mode. The result has no grad_norm and no lr.
  StepResult evaluate(const StepBatch& batch);
  // Runs the forwards in generate mode and returns the named outputs of the last position, [samples, ...], on every rank: for
  // this rank's part of the batch, joined over micro-batches.
  std::map<std::string, at::Tensor> infer(const StepBatch& batch);
  // As above, and returns on every rank what `reduce` makes of the outputs where the last position runs: a pipeline sends less.
  // With this rank's `cache` a micro-batch is one sample, the next tokens of some sequences, and outputs are joined along tokens.
  Value infer(const StepBatch& batch, const ReduceOutputs& reduce, KvCache* cache = nullptr);

  // Returns the gradients of the objective with respect to the fields that Program::input_gradients names, each [samples, ...] as
  // in this rank's part of the batch, which must have floating-point type. Runs the forwards and backwards of a training step and
  // changes nothing. In fp16 they may overflow as those of parameters. Throws Misuse if no gradient flows to a field.
  std::map<std::string, at::Tensor> input_gradients(const StepBatch& batch);

  // Returns the axes of the mesh with several ranks along which neither the programs nor the parameters differ or communicate.
  std::vector<std::string> idle_axes() const;

  // A step by hand: the forward of one micro-batch (returns its mean loss) and its backward, for each micro-batch, then the rest
  // of the step. Gradients are divided by micro-batches x data-parallel size, or by `divisor` if it is above 0. Throws Misuse for
  // another order of calls.
  double forward(const Batch& micro_batch);
  void backward();
  StepResult finish_step(double divisor = 0);

  // Sets the base learning rate of the following steps; nullopt returns to the schedule's. Throws Misuse unless it is finite and
  // not negative.
  void set_lr(std::optional<double> lr);
  double loss_scale() const;

  // Waits for the collectives that the last step left in flight.
  void drain();
  int64_t global_step() const { return state().step; }

  // The tensors of the model's state by name, and the trainer's memory between phases of a run.
  TrainerTensors& tensors() { return *tensors_; }
  const TrainerTensors& tensors() const { return *tensors_; }
  TrainerPhases& phases() { return *phases_; }

  // Lets what follows describe `infer` instead of `evaluate`, with `cache`, if given. For a dry trainer without an optimizer.
  void describe_inference(const CacheBytes& cache = {});
  // Returns a text for people: model, actions by kind, bytes sent per step, bytes held by kind. Not collective.
  std::string report();
  std::vector<MemoryLine> memory();  // not collective
  // Returns what ranks do, hold and send: one entry {ranks = "0-511", count, memory, actions, sent, assumptions} for each kind of
  // rank, with bytes by kind. `batch`: each rank's part of a global batch, for which activations are predicted. Not collective.
  Value plan(const StepBatch& batch);
  // Simulates a step over such a batch; see zt::simulate. Not collective. With a program of the same model, simulates that
  // instead of the trainer's own, with the trainer's optimizer; this is collective.
  std::shared_ptr<Simulation> simulate(const StepBatch& batch, const Costs& costs,
                                       const std::shared_ptr<const Program>& program = nullptr) const;
  // Runs `steps` training steps over the batch, which count and change the model as those of `step` do, but wait for each action
  // before the next. Returns what the actions took, equal on all ranks. Throws Misuse if steps < 1, or as `step`.
  Costs costs(const StepBatch& batch, int steps);
  // Returns the peak of the bytes that a step over such a batch allocates. Its forwards and backwards run on tensors without
  // memory. Throws Misuse, naming the layer, if an operator does not support such tensors. Not collective.
  int64_t predict_activations(const StepBatch& batch);
  Trace& trace() { return trace_; }
  // The program; without an optimizer a frozen one.
  const Program& program() const { return *program_; }
  const std::shared_ptr<Program>& shared_program() const { return program_; }
  const StepState& state() const;

  void visit(Visitor& visitor) override;

 private:
  Trainer(std::shared_ptr<Program> program, TrainerOptions options);
  TrainerRuns& running() const;
  void visit_tensors(Visitor& visitor);

  std::shared_ptr<Program> program_;
  TrainerOptions options_;
  Trace trace_;
  std::shared_ptr<const Plan> plan_;      // what each rank does, holds and sends
  std::unique_ptr<Store> store_;          // the buffers; a dry trainer's store has none
  std::unique_ptr<StepControl> control_;  // learning rate, loss scale, number of updates
  std::unique_ptr<TrainerRuns> running_;  // runs the programs; null for a dry trainer
  std::unique_ptr<TrainerTensors> tensors_;
  std::unique_ptr<TrainerPhases> phases_;
  std::unique_ptr<Report> report_;  // what a person wants to know
};

ZT_OBJECT(Trainer)

}  // namespace zt
