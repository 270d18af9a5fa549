// Runs the programs of the three modes on a store's buffers.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "execute/compute.h"
#include "execute/counts.h"
#include "execute/step_handlers.h"
#include "share_outputs.h"
#include "step_control.h"
#include "store.h"
#include "zt/plan/allocation.h"

namespace zt {

// Returns the failure; an OutOfMemory with what the rank holds and what would need less.
std::exception_ptr with_advice(const std::exception_ptr& failure, const Plan& plan);

// Throws `failure` with `more` at the end of its message.
[[noreturn]] void rethrow_with(const std::exception_ptr& failure, const std::string& more);

// Invariant: the works in flight are those of one mode's program, which the runner waits for before another mode runs.
// Threads: the rank's thread only. All functions that run actions are collective over the mesh.
class Runner {
 public:
  // Throws Misuse if two passes bring handlers for one kind of action.
  Runner(std::shared_ptr<const Plan> plan, Store& store, StepControl& control, std::shared_ptr<const Optimizer> optimizer,
         Trace& trace);

  StepResult step(const StepBatch& batch) {
    return step(batch, [this](Executor& running) { running.run(state_); });
  }
  // Calls `run` to run the program.
  StepResult step(const StepBatch& batch, const std::function<void(Executor&)>& run);
  StepResult evaluate(const StepBatch& batch);
  Outputs infer(const StepBatch& batch);
  Value infer(const StepBatch& batch, const std::function<Value(const Outputs&)>& reduce);

  // Waits for all works in flight.
  void drain();
  StepControl& control() { return control_; }
  // Completes the sum of the unit's gradient, unless an action has done so.
  void complete_gradient(int unit) { compute_->gradients().complete(unit); }
  int64_t extra_gradient_bytes() const { return compute_->gradients().extra_bytes(); }
  // The last training step's micro-batches, on device meta; empty before the first.
  const std::vector<Batch>& shapes() const { return shapes_; }
  // The peak of the bytes that tensors made within a step over such shapes; -1 before the first one by `step`.
  int64_t activation_bytes() const { return is_measured_ ? activations_.peak_bytes() : -1; }
  void visit_values(Visitor& visitor);

  // For steps that are run in parts.
  Executor& activate(Mode mode);  // the mode's executor, once the works of another mode are done
  StepState& state() { return state_; }
  ComputeState& compute() { return *compute_; }
  Normalisation& normalisation() { return *normalisation_; }
  std::vector<Batch>& given() { return given_; }  // the current step's micro-batches; by hand those so far
  // Notes the shapes of a step's micro-batches.
  void note_shapes(const std::vector<Batch>& micro_batches);
  // Throws StepRefused on all ranks unless they are about to run the same mode at the same step, on sound parameters. For
  // programs that communicate but do not begin with COUNT, which checks that.
  void ensure_same_step(const Program& program) const;
  // Lets `running` begin over these micro-batches; by hand without any.
  void begin(const std::vector<Batch>& micro_batches, const Executor& running);

  // How a run is completed after a failure.
  struct Rescue {
    std::function<void()> join = {};  // takes part in the rest of the run; empty: Executor::join_rest
    std::string advice = {};          // for the end of the error's message
    bool is_begun = false;            // the run goes on after an earlier part
  };
  // Calls `body`, which runs actions of `running` from `first` on. If it fails on a rank, all ranks whose numbers come together
  // in NORM throw: that rank its own error, the others a Misuse with its text. Parameters, optimizer state and the number of the
  // step are then as before, unless the step had begun to change them: then the trainer refuses all but a load. After a Fault it
  // refuses everything.
  void attempt(Executor& running, int first, const std::function<void()>& body, const Rescue& rescue);
  // While it lives, calls from within (by layers, losses and actions) are refused.
  class Busy {
   public:
    explicit Busy(Runner& runner) : runner_(runner), before_(std::exchange(runner.is_busy_, true)) {}
    ~Busy() { runner_.is_busy_ = before_; }
    Busy(const Busy&) = delete;

   private:
    Runner& runner_;
    bool before_;
  };
  // Throws if the last failure has left parameters that must not be used.
  void require_sound() const;
  // Throws within a step, and after a Fault; allows a load.
  void require_alive() const;
  void set_sound() { half_updated_.clear(); }
  // Refuses all further use but a load, after one that failed and may have changed a part of the trainer.
  void set_half_loaded(const std::string& why);
  // Ends all further use, after a Fault.
  void lose(const std::string& why) { lost_ = why; }
  // Whether the gradients are those of a step that is under way or has failed.
  bool has_partial_gradients() const { return has_partial_gradients_; }
  // Makes given()[micro_batch] the micro-batch. Backwards start at its mean loss. Returns its counts.
  Counts begin_micro_batch(int micro_batch);
  // Counts the step, or reports what was not finite.
  StepResult finish_step(int64_t begin_ns);

 private:
  void require_not_lost() const;
  Outputs own_outputs(const StepBatch& batch);
  Outputs run_inference(const StepBatch& batch, Executor& running);
  [[noreturn]] void fail(Executor& running, const std::exception_ptr& failure, const Rescue& rescue);
  void agree_on_failure(const Program& program);
  bool has_changed(const Executor& running) const;
  StepResult result(int64_t begin_ns) const;
  void skip_step();
  void check_objective() const;
  void warn_of_zero_gradient() const;
  Executor& executor(Mode mode);

  std::shared_ptr<const Plan> plan_;
  StepState& state_;
  StepControl& control_;
  Trace& trace_;
  std::shared_ptr<Normalisation> normalisation_;
  std::shared_ptr<ComputeState> compute_;
  Executor::Handlers handlers_;
  std::map<Mode, std::unique_ptr<Executor>> executors_;
  Executor* running_ = nullptr;  // its works may be in flight
  AllocationWatch activations_;
  std::vector<Batch> shapes_;
  bool is_measured_ = false;  // activations_ has seen a step over shapes_
  std::vector<Batch> given_;
  bool is_begun_ = false;  // the values of this run have their places
  bool has_partial_gradients_ = false;
  std::string half_updated_;  // why parameters must not be used until a load; empty: they are sound
  bool is_busy_ = false;
  std::string lost_;  // the Fault that ended all use; empty: none
};

// Runs the forwards and backwards of the step that has just ended once more and returns the first loss or gradient that is not
// finite, in words; empty if there is none. Collective over the axes of NORM, whose ranks know that something is not finite.
std::string find_nonfinite(Runner& runner, const Plan& plan);

}  // namespace zt
