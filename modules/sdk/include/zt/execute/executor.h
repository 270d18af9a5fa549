// Runs a program: one loop over its actions.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zt/comm/comm.h"
#include "zt/model/optimizer.h"
#include "zt/model/unit.h"
#include "zt/process/trace.h"
#include "zt/program/program.h"

namespace zt {

// Fields of the rank's part of the global batch, each [samples, ...]. Micro-batch m is the m-th contiguous part.
using Batch = std::map<std::string, at::Tensor>;

// A term of the objective: what the layers' sums of that name, over tokens or samples, come to once divided by their number.
struct LossTerm {
  std::string name;
  double value = 0;  // over all ranks
};

// What the actions of one step share. The trainer owns it; handlers change buffers in it.
struct StepState {
  int64_t step = 0;  // 0-based global step
  const ModelInfo* model = nullptr;
  std::vector<Unit> units;       // one a unit of the model
  at::Tensor wire;               // [longest bucket] what gradients are sent from, where that is not what they are summed in
  Counts counts;                 // valid tokens and samples: this rank's; after COUNT the global batch's
  std::vector<LossTerm> losses;  // sorted by name after NORM
  double loss = 0;               // the objective, after NORM
  double grad_norm = 0;          // after NORM: L2, of the gradient of the objective, before clipping
  bool is_finite = true;         // after NORM: loss and gradients, on all ranks
  double loss_scale = 1;         // what backwards multiply the loss by
  // A gradient buffer (Unit::grad, grad_shard, grad_sum) holds this multiple of the gradient of the objective. It contains
  // loss_scale. Set by COUNT; by hand micro-batches x data-parallel size x loss_scale from the first forward, until finish_step
  // is given another divisor.
  double grad_divisor = 1;
  double clip = 0;  // maximum norm; 0: off
  Scalars scalars;  // for STEP
  // The communicator over these mesh axes, joined in this order.
  std::function<Communicator&(const std::vector<std::string>& axes)> comm;
};

// Runs the actions of one kind. `start` may return work in flight; the executor waits for it before the first later action
// that touches one of the action's resources, or at the end of the step if it has none. May throw; the step is then over.
class ActionHandler {
 public:
  virtual ~ActionHandler();
  virtual Work start(const Action& action, StepState& state) = 0;
};

// Runs one program again and again. A work that has resources may cross the end of a run: `drain` before anything else touches
// the state. A work without resources is waited for when the last action of the program has started.
//
// Before an action other than a backward reads the gradient of a unit, `complete_gradient(unit)` is called.
class Executor {
 public:
  using Handlers = std::map<KindId, std::shared_ptr<ActionHandler>>;

  // Resources that lie in one buffer, as one of them: what touches the one waits for what touches the other.
  using BufferOf = std::function<Resource(const Resource&)>;

  // Misuse if a kind has no handler. `trace` may be nullptr, `buffer_of` empty: each resource has a buffer of its own.
  Executor(Program program, const ModelInfo& model, const Handlers& handlers, std::function<void(int unit)> complete_gradient,
           Trace* trace, const BufferOf& buffer_of = nullptr);

  // Runs actions [begin, end); end = -1: to the last. Throws what a handler or a work throws; the program cannot go on then.
  void run(StepState& state, int begin = 0, int end = -1);
  // Waits for all works in flight. Throws the failure of the first that failed; the works after it are still in flight then.
  void drain();
  const Program& program() const { return program_; }

 private:
  struct Instruction {
    ActionHandler* handler;
    std::vector<int> resources;  // dense ids of all it reads and writes
    std::vector<int> gradients;  // units whose gradient must be complete before it starts
    std::string text;            // of the action: "REDUCE_GRAD 3"
    uint32_t trace_name;
    bool waits;  // for its work, before the next action
  };
  struct InFlight {
    Work work;
    std::vector<int> resources;
    uint32_t trace_name;
    int64_t begin_ns;
  };
  // Frees the slot and waits for its work.
  void wait_for(int slot);
  void wait_for_all(bool (*is_wanted)(const InFlight&));
  void start(const Instruction& instruction, const Action& action, StepState& state);

  Program program_;
  Handlers handlers_;
  std::vector<Instruction> instructions_;
  std::vector<std::optional<InFlight>> in_flight_;  // by slot; a slot without a value is free
  std::vector<int> holder_;                         // by resource: slot in in_flight_ of the work that touches it, -1: none
  std::function<void(int)> complete_gradient_;
  Trace* trace_;
};

ZT_OBJECT(ActionHandler)

}  // namespace zt
