// Inserts communication actions where their units become ready. Small units are merged into buckets.
#pragma once

#include <cstdint>
#include <vector>

#include "readiness.h"
#include "zt/program/rank_program.h"

namespace zt::zero {

// The action to insert, and the limits of its buckets.
struct Bucketing {
  KindId kind = 0;
  const std::vector<UnitPlan>& plans;  // by unit; units communicate along their comm_axes
  std::vector<ResourceId> touched;     // a bucket ends before an action that reads or writes one of these resources of its units
  bool waits = false;                  // the executor waits for each action's work before the next action
  int64_t bytes = 0;                   // maximum size of a bucket, counted as 4 bytes per element; 0: no merging
};

// Inserts one action per bucket: its target is the first unit, attrs.units are the other units, in the order in which they became
// ready. The action comes directly after the one that makes the last unit ready. All units of a bucket have the same axes,
// round and part, and no action touches them before they are communicated.
std::vector<Action> insert_buckets(std::vector<Action> actions, const ModelInfo& model, const std::vector<ReadyUnit>& ready,
                                   const Bucketing& bucketing);

}  // namespace zt::zero
