// A rehearsal of a step on tensors without memory (device meta): how many operations each action does, and what it holds.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plan/rank_plan.h"
#include "zt/execute/executor.h"

namespace zt {

// An action of a rehearsal. Bytes are those of tensors that are made within the step: values kept for the backward, temporaries.
struct RehearsedAction {
  double flops = 0;
  int64_t sent = 0;                                  // bytes that its layer sends to other ranks, or that a message has
  std::map<std::string, SentBytes> sent_along = {};  // those of its layer, by axis
  int64_t moved = 0;                                 // bytes that FETCH_VALUE or EVICT_VALUE moves
  TierBytes away = {};                               // bytes that are out of memory after it
  int64_t made = 0;                                  // bytes of all tensors that it made
  int64_t peak = 0;                                  // most bytes held during the action
  int64_t held = 0;                                  // bytes held after it
};

struct Rehearsal {
  std::vector<RehearsedAction> actions;
  int peak_action() const;     // the first that holds the most; -1 without actions
  int64_t peak_bytes() const;  // what it holds
  TierBytes most_bytes_away() const;
};

// The outputs of each position, on device meta.
struct ValueShapes {
  using OfPositions = std::vector<std::vector<at::Tensor>>;  // by position, then by output; undefined where there is none
  std::vector<OfPositions> by_micro_batch;                   // only the first one if all micro-batches have equal shapes

  const std::vector<at::Tensor>& of(int position, int micro_batch) const;
};

// What a rehearsal needs besides the program.
struct RehearsalInputs {
  std::shared_ptr<Model> model;
  const ModelInfo& info;  // of the model's layers
  // Returns the links of the rank `coord`. Layers on device meta ask for the number of ranks, but send nothing.
  std::function<std::shared_ptr<const Links>(const Coord& coord)> links;
  std::vector<Batch> micro_batches;  // a rank's part of a global batch, on device meta
  ValueShapes shapes = {};           // of values that a rank receives; may be empty if it receives none
};

// Returns the shapes from the forwards of the whole model by the rank `coord`, in the mode and precision of `like`. Throws Misuse
// as `rehearse`.
ValueShapes value_shapes(const RehearsalInputs& inputs, const RankProgram& like, const Coord& coord);

// Runs the forwards and backwards of `program` for the rank `coord`, which holds `held`. Micro-batches of equal shapes and kinds
// of actions are alike, so only the first two are run. Throws Misuse, naming the layer, if one of its operators does not run on
// meta tensors.
Rehearsal rehearse(const RehearsalInputs& inputs, const RankProgram& program, const RankUnits& held, const Coord& coord);

}  // namespace zt
