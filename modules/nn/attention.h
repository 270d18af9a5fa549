// Multi-head self-attention with fused projections; grouped-query (Ainslie et al. 2023) when kv_heads < heads.
#pragma once

#include <memory>
#include <string>

#include "affine.h"
#include "attention_core.h"

namespace zt::nn {

struct AttentionOptions {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  bool causal = true;
  bool rotary = false;  // rotary positions; otherwise none here
  double rope_base = 10000;
  bool bias = true;
  double dropout = 0;          // of the attention weights
  double std = 0.02;           // of the initial weights
  double residual_std = 0.02;  // of the initial weights of the product that ends in the residual stream
};

class Attention {
 public:
  static constexpr bool kSplits = true;

  // Parameters `prefix`qkv.weight [(heads + 2 kv_heads) head_dim, hidden] (query, key, value rows) and out.weight
  // [hidden, heads * head_dim], with biases. Misuse when heads do not divide. `path` names the options in messages.
  Attention(AttentionOptions options, const std::string& prefix, const std::string& path);

  // x: [samples, seq, hidden], the same out; with `residual` returns residual + attention(x). Reads the batch's "positions" and
  // "segments" [samples, seq] int64 where it has them: places of different segments do not see each other.
  at::Tensor run(const at::Tensor& x, Context& context, const at::Tensor& residual = {}) const;
  Params params() const;

 private:
  AttentionOptions options_;
  AttentionShape shape_;
  Affine qkv_, out_;
  std::shared_ptr<Rotary> rotary_;
};

}  // namespace zt::nn
