// zero.shard: data parallelism. At stage 0 every rank holds everything. Stage 1 shards the optimizer state over the ranks, stage
// 2 gradients too, stage 3 parameters too.
// S. Rajbhandari et al.: ZeRO: Memory optimizations toward training trillion parameter models. SC 2020.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/value.h"
#include "zt/comm/mesh.h"
#include "zt/program/rank_program.h"

namespace zt::zero {

struct ShardOptions {
  int stage = 0;                         // 1: shards master parameters and optimizer state, 2: gradients too, 3: parameters too
  std::shared_ptr<Axis> axis;            // the data-parallel axis, or several joined: its ranks process different data
  std::shared_ptr<Axis> replicate = {};  // a second data-parallel axis: groups of `axis` along it hold the same shards
  int64_t bucket_bytes = 8 << 20;        // small units are merged up to this size, at 4 bytes per element; 0: no merging
  std::optional<int64_t> gather_bucket_bytes = {};  // bucket size of gathers of parameters; unset: bucket_bytes
  std::optional<std::string> reduce_every = {};  // "step": accumulate, then reduce; "micro_batch": reduce each, then accumulate
  std::optional<std::string> grad_dtype = {};    // dtype of gradient buffers; unset: the program's
  std::optional<std::string> reduce_dtype = {};  // dtype in which gradients are sent; unset: grad_dtype, or the program's
  std::optional<bool> overlap = {};              // communication overlaps with compute; unset: over nccl only
  std::optional<int> prefetch = {};              // stage 3: units gathered ahead of their use; unset: 1 with overlap, 0 without
  int64_t persist_below = 0;                     // stage 3: units with fewer elements stay whole
  int64_t max_reuse_distance = 0;        // stage 3: a unit stays whole while at most this many elements of other units are used
  int64_t max_live = 0;                  // stage 3: bound of the elements that are whole at the same time; 0: no bound
  std::optional<bool> node_shared = {};  // ranks hold parameters once; unset: at stages 1 to 3 if they share memory
  std::string keep = "use";    // stage 3: "forward": a unit stays whole from forward to backward; "max_live": while there is room
  int64_t sub_group_size = 0;  // most elements per slice of a STEP, rounded up to a multiple of kSliceAlign; 0: whole units

  // Returns whether an option was given that only applies to sharded parameters (stage 3).
  bool moves_parameters() const;
  // Returns the names of the data-parallel axes: those of `axis` and of `replicate`.
  std::vector<std::string> data_axes() const;
  // Returns `overlap`, or its default.
  bool overlaps() const;
  // Returns `reduce_every`, or its default: "step" at stages 0 and 1, "micro_batch" at stages 2 and 3.
  std::string reduction() const { return reduce_every.value_or(stage >= 2 ? "micro_batch" : "step"); }
};

// Throws Misuse for an unknown key, a wrong type or a value out of range, and for options that exclude each other.
ShardOptions parse_shard_options(const Value& options);

// Returns the pass. Its `apply` is pure. It throws Misuse if parameters of one unit have different placements on the axis, if the
// axis is not a data-parallel one, or if a unit is already reduced or sharded.
std::shared_ptr<Pass> make_shard(ShardOptions options);

}  // namespace zt::zero
