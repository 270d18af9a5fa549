// Joins attention over some keys of a sample with attention over others.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt::nn {

// The attention of queries to some keys: out [B, S, H D] and the logsumexp of the scores [B, H, S], both in the wide dtype. A
// query that sees none of the keys has the out 0 and the logsumexp -inf.
struct BlockResult {
  at::Tensor out, logsumexp;
};

// Changes `sum` to the attention to the keys of both. Overwrites block.out. A block that a query does not see changes nothing of
// it. Weights are taken from the larger logsumexp, so no exponential overflows.
void merge_block(const BlockResult& sum, const BlockResult& block);

}  // namespace zt::nn
