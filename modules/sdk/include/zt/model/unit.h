// A unit: the grain of sharding and movement, the parameters of one layer in one flat buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zt {

// The flat layout of one unit over W ranks. Parameters start at multiples of kParamAlign elements; rank r owns
// [r * chunk, min(n, (r + 1) * chunk)), chunk = 256 * ceil(n / (256 * W)); buffers hold W * chunk elements. Pure.
struct FlatLayout {
  static constexpr int64_t kParamAlign = 32;
  static constexpr int64_t kBlock = 256;

  int64_t numel = 0;  // n
  int ranks = 1;      // W
  int64_t chunk = 0;

  FlatLayout() = default;
  FlatLayout(int64_t numel, int ranks);
  int64_t padded() const { return chunk * ranks; }
  int64_t begin(int rank) const;  // clipped to n, so empty shards have begin == end
  int64_t end(int rank) const;
};

// How a unit's buffers are held: what zero decides, what the trainer allocates by. Each kind of sharding includes those above it.
struct UnitPlan {
  std::string axis = {};       // shards are cut along this axis; empty: not sharded
  bool state_sharded = false;  // stage >= 1: master and optimizer state
  bool grad_sharded = false;   // stage >= 2: gradients, from their reduction on; before, in a buffer that units share
  bool param_sharded = false;  // stage 3: parameters, outside UNSHARD ... RESHARD; between, in a buffer that units share
  bool node_shared = false;    // the ranks of the axis hold the parameters once, in memory that all of them read
  std::string replicate = {};  // the groups of `axis` along this axis hold the same shards; empty: there is one group
  bool operator==(const UnitPlan&) const = default;
};

// Buffers of one unit on this rank. The trainer owns them; action handlers read and write them.
struct Unit {
  int index = 0;
  FlatLayout layout;         // over the axis that shards the optimizer state (one rank: not sharded)
  int rank = 0;              // this rank's place on that axis
  bool is_first = true;      // of the groups that hold the same shards this rank's is the one that counts in norms
  bool node_shared = false;  // `full` is one memory for all ranks of that axis; each writes its own part
  at::Tensor full;           // [padded] the parameters. Sharded ones: shared with other units, theirs from UNSHARD to RESHARD
  at::Tensor shard;          // [chunk] the owned part of the parameters; a view into `full` unless parameters are sharded
  at::Tensor master;         // [chunk] the owned part the optimizer updates; `shard` itself unless that has fewer bits
  at::Tensor grad;           // [padded] the gradient, summed over uses and micro-batches; undefined when nothing is trainable.
                             // Sharded ones: shared with other units, from the first backward to the reduction
  at::Tensor grad_shard;     // [chunk] the owned part of the sum: of `grad`, or where gradients are sharded a buffer of its own
  at::Tensor grad_sum;       // [chunk] sum of the parts reduced so far; undefined unless each micro-batch is reduced by itself
  std::map<std::string, at::Tensor> state;  // optimizer state by name, each [chunk]

  // Whether `grad_shard` is a buffer of its own, and not a part of `grad`; `shard`, and not of `full`; `master`, and not `shard`.
  bool owns_grad_shard() const { return grad.defined() && !grad_shard.is_alias_of(grad); }
  bool owns_shard() const { return !shard.is_alias_of(full); }
  bool owns_master() const { return !master.is_alias_of(shard); }
  // After `master` was changed by anything but an optimizer's step: gives `shard` its values, rounded to nearest even.
  void round_master() const {
    if (owns_master()) at::Tensor(shard).copy_(master);
  }
};

}  // namespace zt
