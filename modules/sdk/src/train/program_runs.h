// Runs a trainer's programs, and keeps what can be kept when a run fails.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "execute/counts.h"
#include "execute/step/layer_runs.h"
#include "execute/step_handlers.h"
#include "health.h"
#include "store/store.h"

namespace zt {

// Returns the failure; an OutOfMemory with what the rank holds and what would need less.
StepFailure describe_failure(const std::exception_ptr& failure);
std::exception_ptr with_advice(const std::exception_ptr& failure, const Plan& plan);

// Throws `failure` with `more` at the end of its message.
[[noreturn]] void rethrow_with(const std::exception_ptr& failure, const std::string& more);

// How a run is completed after a failure.
struct Rescue {
  std::function<void()> join = {};  // takes part in the rest of the run; empty: Executor::join_rest
  std::string advice = {};          // for the end of the error's message
  bool is_begun = false;            // the run goes on after an earlier part
};

// Invariant: the works in flight are those of one mode's program, for which `activate` waits before another mode runs.
// Threads: the rank's thread only. All functions that run actions are collective over the mesh.
class ProgramRuns {
 public:
  // Throws Misuse if two passes bring handlers for one kind of action.
  ProgramRuns(std::shared_ptr<const Plan> plan, Store& store, std::shared_ptr<const Optimizer> optimizer, Trace& trace);

  Health& health() { return health_; }
  StepState& state() { return state_; }
  LayerRuns& layers() { return *layers_; }
  StepParts& parts() { return layers_->parts(); }
  const StepParts& parts() const { return layers_->parts(); }

  Executor& activate(Mode mode);  // the mode's executor, once the works of another mode are done
  void drain();                   // waits for all works in flight

  // Let `running` begin over this rank's micro-batches, or by hand without any.
  void begin(std::vector<Batch> micro_batches, const Executor& running);
  void begin_by_hand(const Executor& running);
  // Makes this the micro-batch `index` of a step by hand, of which the earlier ones have run. Backwards start at its mean loss.
  // Returns its counts.
  Counts set_micro_batch(int index, const Batch& batch);
  // Call when a training step is complete: frees its batch.
  void end_step();
  // Whether the gradients are those of a step that is under way or has failed.
  bool has_partial_gradients() const { return has_partial_gradients_; }

  // Calls `body`, which runs actions of `running` from `first` on. If it fails on a rank, all ranks whose numbers come together
  // in NORM throw: that rank its own error, the others a Misuse with its text. Parameters, optimizer state and the number of the
  // step are then as before, unless the step had begun to change them: then all but a load is refused. After a Fault everything
  // is.
  void attempt(Executor& running, int first, const Rescue& rescue, const std::function<void()>& body);
  // Throws StepRefused on all ranks unless they are about to run the same mode at the same step, on sound parameters. For
  // programs that communicate but do not begin with COUNT, which checks that.
  void ensure_same_step(const RankProgram& program) const;
  // Throws StepRefused on all ranks unless those that share work on the same samples have been given the same. For runs without
  // COUNT, which checks that, after ensure_same_step and `begin`. Collective.
  void ensure_same_samples(const RankProgram& program);
  // Calls `body`, which does not communicate. If it fails on a rank, throws StepRefused on all: in layers that communicate a rank
  // that has failed could not take part. Collective.
  void refuse_together(const RankProgram& program, const std::function<void()>& body);
  // Tells all ranks of a failure, as NORM does in training programs.
  void agree_on_failure(const RankProgram& program);

 private:
  Executor& executor(Mode mode);
  // Throws StepRefused on all ranks of `axes` unless sum_counts takes what they tell. Collective.
  void compare(Mode mode, const std::vector<std::string>& axes, const Contribution& mine) const;
  [[noreturn]] void fail(Executor& running, const std::exception_ptr& failure, const Rescue& rescue);
  bool has_changed(const Executor& running) const;

  std::shared_ptr<const Plan> plan_;
  StepState& state_;
  Trace& trace_;
  std::shared_ptr<LayerRuns> layers_;
  Executor::Handlers handlers_;
  std::map<Mode, std::unique_ptr<Executor>> executors_;
  Executor* running_ = nullptr;  // its works may be in flight
  bool is_begun_ = false;        // the values of this run have their places
  bool has_partial_gradients_ = false;
  Health health_;
};

}  // namespace zt
