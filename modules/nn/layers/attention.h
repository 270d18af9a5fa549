// Multi-head self-attention with fused projections; grouped-query (Ainslie et al. 2023) when kv_heads < heads.
#pragma once

#include <memory>
#include <string>

#include "affine.h"
#include "cpu/attention_core.h"
#include "zt/base/options.h"

namespace zt::nn {

// The options that nn.attention, nn.block and nn.gpt have in common.
struct HeadOptions {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  bool causal = true;
  double rope_base = 10000;
  double std = 0.02;  // of the initial weights
};

struct AttentionOptions : HeadOptions {
  bool rotary = false;  // rotary positions; otherwise none here
  bool bias = true;
  double dropout = 0;          // of the attention weights; a block's of both branches too
  double residual_std = 0.02;  // of the initial weights of the product that ends in the residual stream
};

// Adds the rows of HeadOptions to a schema. Options derives from HeadOptions.
template <class Options>
Schema<Options>&& head_options(Schema<Options>&& schema) {
  return std::move(schema)
      .required("hidden", static_cast<int64_t Options::*>(&Options::hidden), "columns of input and output",
                Check<int64_t>(at_least(1)))
      .required("heads", static_cast<int64_t Options::*>(&Options::heads), "query heads", Check<int64_t>(at_least(1)))
      .optional("kv_heads", static_cast<int64_t Options::*>(&Options::kv_heads), "key and value heads; 0: as many as heads",
                Check<int64_t>(at_least(0)))
      .optional("head_dim", static_cast<int64_t Options::*>(&Options::head_dim), "columns of a head; 0: hidden / heads",
                Check<int64_t>(at_least(0)))
      .optional("causal", static_cast<bool Options::*>(&Options::causal), "a place sees no later one")
      .optional("rope_base", static_cast<double Options::*>(&Options::rope_base), "base of the rotary angles",
                Check<double>(above(0)))
      .optional("std", static_cast<double Options::*>(&Options::std), "of the initial weights", Check<double>(at_least(0)));
}

// Adds the rows of AttentionOptions. Options derives from AttentionOptions.
template <class Options>
Schema<Options>&& attention_options(Schema<Options>&& schema, const std::string& dropout_of) {
  return head_options(std::move(schema))
      .optional("rotary", static_cast<bool Options::*>(&Options::rotary), "rotary positions")
      .optional("bias", static_cast<bool Options::*>(&Options::bias), "add biases")
      .optional("dropout", static_cast<double Options::*>(&Options::dropout), dropout_of, Check<double>(between(0, 0.999)))
      .optional("residual_std", static_cast<double Options::*>(&Options::residual_std),
                "of the initial weights that end in the residual", Check<double>(at_least(0)));
}

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
