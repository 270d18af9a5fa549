// RMSNorm over each query head and each key head of an attention, before rotary positions, as in Qwen3 (Yang et al. 2025).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "attention/attention_core.h"
#include "parts/params.h"
#include "zt/model/layer.h"

namespace zt::nn {

class HeadNorm {
 public:
  // Makes the parameters `prefix`q_norm.weight and `prefix`k_norm.weight [head_dim], initialised to ones. All heads of a kind
  // share one weight.
  HeadNorm(int64_t head_dim, double eps, const std::string& prefix);

  // Returns a new tensor of the shape of qkv, which has the heads of `shape`: query heads and key heads with their norms, and the
  // values as they are. qkv: [..., columns] in the parameters' dtype. Statistics are in float32 (float64 for float64). Keeps qkv
  // and the statistics for the backward, which adds the gradients of the weights to the context's sinks.
  at::Tensor run(const at::Tensor& qkv, const AttentionShape& shape, Context& context) const;
  Params params() const { return {query_, key_}; }

 private:
  double eps_;
  std::shared_ptr<Param> query_, key_;
};

}  // namespace zt::nn
