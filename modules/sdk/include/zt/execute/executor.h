// Runs a program: one loop over its actions.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/error.h"
#include "zt/execute/gradient_norm.h"
#include "zt/execute/homes.h"
#include "zt/execute/links.h"
#include "zt/execute/pass_tensors.h"
#include "zt/execute/step_batch.h"
#include "zt/execute/value_store.h"
#include "zt/model/layer_extras.h"
#include "zt/model/optimizer.h"
#include "zt/model/unit.h"
#include "zt/process/trace.h"
#include "zt/program/rank_program.h"

namespace zt {

// A term of the objective: the mean over the tokens or samples of all ranks of what the layers add under this name.
struct LossTerm {
  std::string name;
  double value = 0;
};

// Why a step cannot be completed on this rank.
struct StepFailure {
  std::string text;
  bool is_of_peer = false;  // another rank has failed, and this rank has learnt it
};

// Thrown by all ranks at COUNT, before anything else has run: the step does not begin.
class StepRefused : public Misuse {
 public:
  using Misuse::Misuse;
  ~StepRefused() override;
};

// What a rank holds. The trainer's Store fills it in.
struct RankData {
  const ModelInfo* model = nullptr;
  std::vector<Unit> units;               // one per unit of the model
  std::vector<at::Tensor> parameters;    // by ModelInfo::params: what layers read, as leaves_of; undefined if not held
  std::vector<at::Tensor> buffers;       // by ModelInfo::buffers; undefined if this rank does not run the layer
  ValueStore values;                     // between the positions that this rank runs, or exchanges with other ranks
  std::vector<PassTensor> pass_buffers;  // as RankProgram::buffers of the main program
  Elsewhere elsewhere;                   // the data that are not always in the device's memory
  KvCache* kv_cache = nullptr;           // of the inference that runs; null if it has none
  bool adapters = true;                  // as Context::adapters
  int64_t replacements = 0;              // how often parameters were replaced: by a load, or set by hand
  at::Tensor wire;  // [longest bucket] send buffer, if gradients are sent in another dtype than they are summed in
};

// What a step counts, adds up and finds.
struct StepNumbers {
  int64_t step = 0;               // 0-based global step
  Counts counts;                  // valid tokens and samples of this rank; after COUNT those of the global batch
  std::vector<LossTerm> losses;   // sorted by name after NORM
  Stats stats;                    // after NORM: by "LAYER.NAME", over all micro-batches and ranks
  double loss = 0;                // the objective, after NORM
  double grad_norm = 0;           // after NORM: L2 norm of the gradient of the objective, before clipping
  bool is_finite = true;          // after NORM: whether losses, statistics and gradients are finite on all ranks
  bool is_forward_finite = true;  // after NORM: whether losses and statistics are
  uint64_t finite_norms = 0;      // NORMs of finite gradients so far
  // Before NORM, of gradients that have left the memory: the squares of the pieces that this rank counts, and by parameter the
  // norms of what it owns, if NORM compares them with those of other ranks.
  ExactSum squares;
  std::map<int, double> norms_of_left;
  // Set once an action has failed on this rank. The actions after it only take part in communication, with any numbers, so that
  // no rank waits for ever (Executor::join_rest). A step that failed before its updates is like a skipped one.
  std::optional<StepFailure> failure;
  // After NORM: the first failure of a rank, in words with the rank; empty if no rank has failed. Equal on all ranks of NORM.
  std::string known_failure;
  double loss_scale = 1;  // backwards multiply the loss by it
  // A gradient buffer (Unit::grad, grad_shard, grad_sum) holds this multiple of the gradient of the objective. loss_scale is a
  // factor of it. COUNT sets it. In a step by hand it is micro-batches x data-parallel size x loss_scale from the first forward,
  // until finish_step is given another divisor.
  double grad_divisor = 1;
  double clip = 0;  // maximum norm; 0 means no clipping
  Scalars scalars;  // for STEP
};

// All that the actions of one step share. The trainer owns it; handlers change buffers and numbers in it.
struct StepState : RankData, StepNumbers {
  std::shared_ptr<const Links> links;  // to other ranks

  // Returns the buffer of a pass; undefined if this rank has none.
  at::Tensor pass_buffer(ResourceId type, int32_t index) const;
};

// Runs the actions of one kind. `start` may return work in flight. The executor waits for it before the first later action that
// conflicts with it, or at the end of the step if the action has no resources. Two actions conflict if both touch a resource and
// at least one of them writes it.
//
// If `start` throws, the step has failed on this rank. It must not have communicated then, except before PeerFailed: the executor
// calls it once more, with StepState::failure set, if the action communicates. It must then do so as the other ranks expect, with
// any numbers, without the values and gradients of layers, which may be missing.
class ActionHandler {
 public:
  virtual ~ActionHandler();
  virtual Work start(const Action& action, StepState& state) = 0;
  // Returns where a script defines it, such as "exp.lua:12", for reports about runs that hang; empty for C++.
  virtual std::string place() const { return {}; }
};

// Returns a handler whose `start` is this function.
std::shared_ptr<ActionHandler> handler_of(std::function<Work(const Action&, StepState&)> start);

class ConflictTable;

// Runs one program repeatedly. A work that has resources may still be in flight after a run: call `drain` before anything else
// touches the state. The executor waits for a work without resources when the last action of the program has started.
//
// Calls `complete_gradient(unit)` before an action other than a backward reads the gradient of a unit.
class Executor {
 public:
  using Handlers = std::map<KindId, std::shared_ptr<ActionHandler>>;

  // `trace` may be null. Throws Misuse if a kind has no handler.
  Executor(RankProgram program, const ModelInfo& model, const Handlers& handlers, std::function<void(int unit)> complete_gradient,
           Trace* trace, const BufferOf& buffer_of = nullptr);
  ~Executor();
  Executor(Executor&&) noexcept;
  Executor& operator=(Executor&&) noexcept;

  // Runs actions [begin, end), or to the last one if end is -1. Throws what a handler or a work throws, a Fault with the name of
  // the action. After any other error call `join_rest`, unless all ranks know that the run ends there.
  void run(StepState& state, int begin = 0, int end = -1);
  // The action with which `join_rest` begins: the one that failed, or the first one after what has run.
  int next() const { return next_; }
  void seek(int action) { next_ = action; }
  // Completes a run that failed, with `state.failure` set: of the actions [next, end), or to the last one if end is -1, starts
  // those that communicate and those that make parameters present or free them, so that they are as after any run. Ignores
  // further errors of actions, but throws Faults, and StepRefused if the other ranks' run ends at COUNT.
  void join_rest(StepState& state, int end = -1);
  // Waits for all works in flight. Throws the first failure; later works are still in flight then.
  void drain();
  const RankProgram& program() const { return program_; }

 private:
  struct Instruction {
    ActionHandler* handler;
    std::vector<int> gradients_read;  // units whose gradients must be complete before it starts
    std::string text;                 // the action's text, such as "REDUCE_GRAD 3"
    std::string activity;             // the text; of an action of a script, its kind and the place that defines it
    std::string about;                // its target by name and its micro-batch, for messages; may be empty
    uint32_t trace_name, wait_name;   // of the action, and of waiting for its work
    Trace::Lane lane;                 // in which its start is recorded
    bool waits;                       // the executor waits for its work before the next action
    bool joins;                       // it runs also after a failure
  };
  struct InFlight {
    Work work;
    int action;  // its index
    int64_t begin_ns;
  };
  Instruction make_instruction(const Action& action, const ModelInfo& model);
  template <class Call>
  static void name_faults(const Instruction& instruction, Call call);
  // Frees the entry of in_flight_ and waits for its work.
  void wait_for(int entry);
  void wait_for_conflicts(int action);
  void wait_for_all(const std::function<bool(const InFlight&)>& is_wanted);
  void start(int action, StepState& state);

  RankProgram program_;
  Handlers handlers_;
  std::vector<Instruction> instructions_;
  std::vector<std::optional<InFlight>> in_flight_;  // entries without a value are free
  std::unique_ptr<ConflictTable> conflicts_;        // its works are indices of in_flight_
  std::function<void(int)> complete_gradient_;
  Trace* trace_;
  int next_ = 0;
};

ZT_OBJECT(ActionHandler)

}  // namespace zt
