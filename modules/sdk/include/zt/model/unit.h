// A unit: the parameters of one layer in one flat buffer. Units are sharded, communicated and freed as a whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zt {

// The flat layout of one unit over W ranks. Parameters start at multiples of kParamAlign elements; rank r owns
// [r * chunk, min(n, (r + 1) * chunk)) with chunk = 256 * ceil(n / (256 * W)); buffers hold W * chunk elements. Plain data.
struct FlatLayout {
  static constexpr int64_t kParamAlign = 32;
  static constexpr int64_t kBlock = 256;

  int64_t numel = 0;  // n
  int ranks = 1;      // W
  int64_t chunk = 0;

  FlatLayout() = default;
  // Throws Misuse if numel < 0 or ranks < 1.
  FlatLayout(int64_t numel, int ranks);
  int64_t padded() const { return chunk * ranks; }
  int64_t begin(int rank) const;  // both are at most n: an empty shard has begin == end
  int64_t end(int rank) const;
};

// Which of a unit's buffers are sharded. Passes such as zero.shard decide it, and the trainer allocates accordingly. Each kind of
// sharding includes the ones above it. A slot is a place in a buffer that units share and take in turns.
struct UnitPlan {
  std::string axis = {};       // mesh axis that is sharded along; empty: not sharded
  bool state_sharded = false;  // stage >= 1: shards master parameters and optimizer state
  bool grad_sharded = false;   // stage >= 2: shards gradients after their reduction; before it they are in a slot
  bool param_sharded = false;  // stage 3: shards parameters; between UNSHARD and RESHARD they are whole, in a slot
  bool node_shared = false;    // the ranks of `axis` share one copy of the parameters, in memory that all of them read
  std::string replicate = {};  // mesh axis along which the groups of `axis` hold the same shards; empty: one group only
  bool operator==(const UnitPlan&) const = default;
};

// The buffers of one unit on this rank. The trainer owns them; action handlers read and write them.
struct Unit {
  int index = 0;
  FlatLayout layout;         // over the ranks of UnitPlan::axis; over one rank if the optimizer state is not sharded
  int rank = 0;              // this rank's index along that axis
  bool is_first = true;      // true if norms count this rank's group, of all groups that hold the same shards
  bool node_shared = false;  // all ranks of the axis share the memory of `full`; each writes only its own part
  at::Tensor full;           // [padded] all parameters; if sharded, a slot that holds them from UNSHARD to RESHARD
  at::Tensor shard;          // [chunk] the owned part of the parameters: a view into `full` unless parameters are sharded
  at::Tensor master;         // [chunk] the owned part that the optimizer updates: `shard` itself unless that has fewer bits
  at::Tensor grad;           // [padded] the gradient, summed over uses and micro-batches; undefined if no parameter is trainable.
                             // If sharded, a slot that holds it from the first backward to the reduction
  at::Tensor grad_shard;     // [chunk] the owned part of the sum: a view into `grad`, or if sharded a buffer of its own
  at::Tensor grad_sum;       // [chunk] sum of the parts reduced so far; undefined unless each micro-batch is reduced by itself
  std::map<std::string, at::Tensor> state;  // optimizer state by name, each [chunk]

  // Return whether `grad_shard`, `shard` and `master` have memory of their own, and are not views into `grad`, `full` and
  // `shard`.
  bool owns_grad_shard() const { return grad.defined() && !grad_shard.is_alias_of(grad); }
  bool owns_shard() const { return !shard.is_alias_of(full); }
  bool owns_master() const { return !master.is_alias_of(shard); }
  // Writes `master` to `shard`, rounded to nearest even. Call after `master` was changed by anything but an optimizer's step.
  void round_master() const {
    if (owns_master()) at::Tensor(shard).copy_(master);
  }
};

}  // namespace zt
