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

// Buffers of one unit on this rank. The trainer owns them; action handlers read and write them.
struct Unit {
  int index = 0;
  FlatLayout layout;      // over the axis that shards the optimizer state (one rank: not sharded)
  int rank = 0;           // this rank's place on that axis
  at::Tensor full;        // [padded] the parameters. Sharded ones: shared with other units, theirs from UNSHARD to RESHARD
  at::Tensor master;      // [chunk] the owned part the optimizer updates; a view into `full` unless parameters are sharded
  at::Tensor grad;        // [padded] the gradient, summed over uses and micro-batches; undefined when nothing is trainable.
                          // Sharded ones: shared with other units, from the first backward to the reduction
  at::Tensor grad_shard;  // [chunk] the owned part of the sum: of `grad`, or where gradients are sharded a buffer of its own
  at::Tensor grad_sum;    // [chunk] sum of the parts reduced so far; undefined unless each micro-batch is reduced by itself
  std::map<std::string, at::Tensor> state;  // optimizer state by name, each [chunk]

  // Whether `grad_shard` is a buffer of its own, and not a part of `grad`; `master`, and not of `full`.
  bool owns_master() const { return master.storage().data() != full.storage().data(); }
  bool owns_grad_shard() const { return grad.defined() && grad_shard.storage().data() != grad.storage().data(); }
};

}  // namespace zt
