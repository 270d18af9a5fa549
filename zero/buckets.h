// Actions on units put into a list where the units are ready, small units merged into buckets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "readiness.h"
#include "zt/program/program.h"

namespace zt::zero {

// What is inserted.
struct Bucketing {
  KindId kind = 0;
  std::string axis;
  std::vector<ResourceKind> touched;  // of a unit: an action that touches one of these ends the bucket the unit is in
  int64_t bytes = 0;                  // a bucket holds at most so many, counting 4 bytes an element; 0: no merging
};

// Inserts one action a bucket: target the first unit, attrs.units the others, in the order in which they got ready. It stands
// right after the last of its units got ready. A bucket holds units of one round and part, and is touched by nothing between.
std::vector<Action> insert_buckets(std::vector<Action> actions, const ModelInfo& model, const std::vector<Ready>& ready,
                                   const Bucketing& bucketing);

}  // namespace zt::zero
