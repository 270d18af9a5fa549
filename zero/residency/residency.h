// Inserts UNSHARD before uses of sharded parameters, and RESHARD after them. Uses follow from the resources that actions declare.
#pragma once

#include <cstdint>
#include <vector>

#include "zt/program/rank_program.h"

namespace zt::zero {

// How long a unit stays whole after a use.
enum class StaysWhole : uint8_t {
  use,       // not at all, unless max_reuse_distance says so
  forward,   // from a micro-batch's forward to its backward
  max_live,  // as long as max_live leaves room
};

struct Residency {
  const std::vector<UnitPlan>& plans;  // by unit
  bool waits = false;                  // the executor waits for each gather before the next action
  int prefetch = 1;                    // number of units by which a unit is gathered ahead of its use
  int64_t max_reuse_distance = 0;  // a unit stays whole if at most this many elements of other units are used before its next use
  StaysWhole keep = StaysWhole::use;
  int64_t max_live = 0;  // bound of the elements that are whole at the same time; 0: no bound. To keep it, gathers are delayed,
                         // and of the units that would stay whole, that with the farthest next use leaves first
};

// Pure. Units whose parameters are sharded are gathered along their shard_axes. Throws Misuse if `max_live` is too small for the
// units that one action uses.
std::vector<Action> insert_residency(std::vector<Action> actions, const ModelInfo& model, const Residency& residency);

}  // namespace zt::zero
