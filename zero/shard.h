// zero.shard: data parallelism with the optimizer's state on every rank (stage 0) or cut over the ranks (stage 1).
// S. Rajbhandari et al.: ZeRO: Memory optimizations toward training trillion parameter models. SC 2020.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "zt/mesh.h"
#include "zt/program.h"
#include "zt/value.h"

namespace zt::zero {

struct ShardOptions {
  int stage = 0;                      // 0: everything on every rank; 1: master parameters and optimizer state are cut
  std::shared_ptr<Axis> axis;         // whose ranks see other data
  int64_t bucket_bytes = 8 << 20;     // small units are merged up to this size, at 4 bytes an element; 0: no merging
  std::string reduce_every = "step";  // "step": accumulate, then reduce; "micro_batch": reduce each, then accumulate
};

// Misuse for an unknown key, a wrong type or a value out of range.
ShardOptions parse_shard_options(const Value& options);

// The pass. Its `apply` is pure and throws Misuse when parameters of one unit relate differently to the axis, when the axis
// is none that sees other data, and when a unit is reduced or sharded already.
std::shared_ptr<Pass> make_shard(ShardOptions options);

}  // namespace zt::zero
