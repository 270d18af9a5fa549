// A simulated step: when each action of each rank runs, and how much memory is held. Nothing is allocated or run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/execute/executor.h"
#include "zt/program/program.h"
#include "zt/simulate/costs.h"

namespace zt {

// One action of a simulated rank. Times are seconds since the begin of the step.
struct SimulatedAction {
  std::string text;  // "REDUCE_GRAD 3"
  std::string kind;
  Role role = Role::other;
  int target = -1, micro_batch = -1;
  double begin = 0, end = 0;                    // on the rank itself
  double transfer_begin = 0, transfer_end = 0;  // equal if it transfers nothing
  int64_t held_bytes = 0;                       // after it, of tensors made within the step
};

// Ranks that behave alike.
struct SimulatedRank {
  std::vector<int> ranks;      // ascending
  std::string name;            // "0-511"
  double busy = 0;             // seconds of its actions
  double span_bubble = 0;      // seconds without an action between its first and its last one
  double barrier_bubble = 0;   // seconds of the step without an action
  int64_t constant_bytes = 0;  // parameters, gradients, optimizer state and buffers
  int64_t peak_bytes = 0;      // with the most that its actions held
  std::string peak_action;     // during which it was held
  std::vector<SimulatedAction> actions;
};

// Sets busy, span_bubble and barrier_bubble, which follow from the actions and the time of the step.
void set_bubbles(SimulatedRank& rank, double seconds);

// What a step does, over all ranks.
struct StepWork {
  int64_t samples = 0, tokens = 0;  // of the global batch; tokens are those of its field "tokens", 0 without
  double flops = 0;                 // of forwards and backwards as counted, without what is computed again
  double peak = 0;                  // operations per second of all ranks at the machine's peak; 0: not known
};

struct Simulation {
  double seconds = 0;   // from one step to the next
  std::string costs;    // the name of the machine, "measured" for measured costs, or empty if the step was not simulated
  std::string assumed;  // the rates of that machine, in words
  std::string mesh;     // "dp=2 x pp=4"
  std::string program;  // its passes and the number of its micro-batches, in words
  int world_size = 1;
  StepWork work;
  std::vector<SimulatedRank> ranks;

  // Returns the model FLOPs utilisation: the part of the peak that forwards and backwards use; 0 if it is not known.
  double mfu() const;
  // Returns a table for people: time, throughput, the rates assumed, and for each kind of rank its bubbles and memory.
  std::string text() const;
  // Returns an SVG picture: one row per kind of rank with its actions in the colors of their roles, transfers below them, and the
  // memory that it holds.
  std::string picture() const;
  // Returns the actions as events of a Chrome or Perfetto trace (JSON), one process per kind of rank.
  std::string trace() const;
};

// Simulates a training step. `batch`: each rank's part of a global batch, whose shapes alone matter. `optimizer` may be null: one
// with two states is assumed then. Collective, as Trainer::make, because it verifies the programs. Throws Misuse with the
// verifier's refusals, for a layer that does not run on tensors without memory, or if the costs do not tell the time of an
// action.
std::shared_ptr<Simulation> simulate(std::shared_ptr<const Program> program, std::shared_ptr<const Optimizer> optimizer,
                                     const StepBatch& batch, const Costs& costs);

ZT_OBJECT(Simulation)

}  // namespace zt
