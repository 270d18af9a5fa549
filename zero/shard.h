// zero.shard: data parallelism with everything on every rank (stage 0), or optimizer state (1), gradients too (2) and parameters
// too (3) cut over the ranks.
// S. Rajbhandari et al.: ZeRO: Memory optimizations toward training trillion parameter models. SC 2020.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "zt/base/value.h"
#include "zt/comm/mesh.h"
#include "zt/program/program.h"

namespace zt::zero {

struct ShardOptions {
  int stage = 0;                         // 1: master parameters and optimizer state are cut, 2: gradients, 3: parameters
  std::shared_ptr<Axis> axis;            // whose ranks see other data
  std::shared_ptr<Axis> replicate = {};  // the groups of `axis` along this axis see other data and hold the same shards
  int64_t bucket_bytes = 8 << 20;        // small units are merged up to this size, at 4 bytes an element; 0: no merging
  std::optional<int64_t> gather_bucket_bytes = {};  // the same for parameters; unset: as bucket_bytes
  std::optional<std::string> reduce_every = {};  // "step": accumulate, then reduce; "micro_batch": reduce each, then accumulate
  std::optional<std::string> grad_dtype = {};    // that gradients are summed in; unset: the program's
  std::optional<std::string> reduce_dtype = {};  // that they are sent in; unset: as they are summed, or the program's
  std::optional<bool> overlap = {};              // communication beside compute; unset: over nccl only
  std::optional<int> prefetch = {};              // stage 3: units gathered ahead of their use; unset: 1 with overlap, 0 without
  int64_t persist_below = 0;                     // stage 3: units of fewer elements stay whole
  int64_t max_reuse_distance = 0;                // stage 3: a unit stays whole over so many elements of others
  int64_t max_live = 0;                          // stage 3: elements that are whole at once; 0: no bound
  std::optional<bool> node_shared = {};  // the ranks hold parameters once; unset: at stages 1 to 3 where they share memory
  std::string keep = "use";              // stage 3: "forward": a unit stays whole from forward to backward
  int64_t sub_group_size = 0;            // STEP in slices of so many elements; 0: units as a whole

  // Options were given that are about parameters which come and go.
  bool moves_parameters() const;
  // As given or by default.
  bool overlaps() const;
  // "step" at stages 0 and 1, "micro_batch" at 2 and 3, unless given.
  std::string reduction() const { return reduce_every.value_or(stage >= 2 ? "micro_batch" : "step"); }
};

// Misuse for an unknown key, a wrong type or a value out of range.
ShardOptions parse_shard_options(const Value& options);

// The pass. Its `apply` is pure and throws Misuse when parameters of one unit relate differently to the axis, when the axis
// is none that sees other data, and when a unit is reduced or sharded already.
std::shared_ptr<Pass> make_shard(ShardOptions options);

}  // namespace zt::zero
