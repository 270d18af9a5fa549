// Multi-head self-attention with one fused projection for queries, keys and values. Grouped-query attention (Ainslie et al. 2023)
// if kv_heads < heads.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "attention/attention_core.h"
#include "context/context_axis.h"
#include "norms/head_norm.h"
#include "parts/tensor_axis.h"
#include "zt/base/options.h"

namespace zt::nn {

// The options that nn.attention, nn.block and nn.gpt share.
struct HeadOptions : TensorAxisOptions {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  bool causal = true;
  bool qk_norm = false;  // RMSNorm over each query head and key head
  double rope_base = 10000;
  std::optional<RopeScaling> rope_scaling = {};
  std::optional<bool> qkv_bias = {};  // of queries, keys and values; nothing: as `bias`
  double std = 0.02;                  // standard deviation of the initial weights
  std::optional<LoraOptions> lora = {};
};

struct AttentionOptions : HeadOptions {
  bool rotary = false;  // use rotary positions; otherwise attention uses no positions
  bool bias = true;
  double qk_norm_eps = 1e-6;
  int64_t window = 0;                          // keys that a query sees up to its own; 0: all
  std::optional<ContextOptions> context = {};  // how the tokens of samples are cut over ranks
  LayerRecompute recompute = LayerRecompute::none;
  double dropout = 0;          // probability for the attention weights; in a block, for both branches, too
  double residual_std = 0.02;  // standard deviation of the initial weights of the output projection
};

// Adds the options of HeadOptions to a schema. Options derives from HeadOptions.
// `is_rotary` says whether positions are rotary, `rotary` by which option.
template <class Options, class IsRotary>
Schema<Options>&& head_options(Schema<Options>&& schema, const std::string& rotary, IsRotary is_rotary) {
  return tensor_options(std::move(schema))
      .required("hidden", &Options::hidden, "columns of input and output", at_least(1))
      .required("heads", &Options::heads, "query heads", at_least(1))
      .optional("kv_heads", &Options::kv_heads, "key and value heads; 0: as many as heads", at_least(0))
      .optional("head_dim", &Options::head_dim, "columns of a head; 0: hidden / heads", at_least(0))
      .optional("causal", &Options::causal, "each token attends only to itself and earlier tokens")
      .optional("qk_norm", &Options::qk_norm, "RMSNorm over each query head and each key head")
      .optional("rope_base", &Options::rope_base, "base of the rotary angles", above(0))
      .only_with("with " + rotary, is_rotary)
      .optional("rope_scaling", &Options::rope_scaling, "how angles become smaller, for longer sequences")
      .only_with("with " + rotary, is_rotary)
      .optional("qkv_bias", &Options::qkv_bias, "add biases to queries, keys and values; default: as `bias`")
      .optional("std", &Options::std, "standard deviation of the initial weights", at_least(0))
      .optional("lora", &Options::lora, "adapters of matrices, which are frozen with all other parameters");
}

// Adds the options of AttentionOptions to a schema. Options derives from AttentionOptions. `dropout_of` is the help of `dropout`.
template <class Options>
Schema<Options>&& attention_options(Schema<Options>&& schema, const std::string& dropout_of) {
  return head_options(std::move(schema), "rotary = true", [](const Options& o) { return o.rotary; })
      .optional("rotary", &Options::rotary, "use rotary positions")
      .optional("bias", &Options::bias, "add biases")
      .optional("qk_norm_eps", &Options::qk_norm_eps, "eps of the norm of heads", at_least(0))
      .only_with("with qk_norm = true", [](const Options& o) { return o.qk_norm; })
      .optional("window", &Options::window, "keys that a token attends to, its own and those before it; 0: all", at_least(0))
      .only_with("with causal = true", [](const Options& o) { return o.causal; })
      .optional("context", &Options::context, "how the tokens of samples are cut over the ranks of a mesh axis")
      .optional("recompute", &Options::recompute,
                "what the backward computes again; selective: the results of norms, activations and the attention core")
      .optional("dropout", &Options::dropout, dropout_of, between(0, 0.999))
      .optional("residual_std", &Options::residual_std, "standard deviation of the initial weights of matmuls that end a branch",
                at_least(0));
}

class Attention {
 public:
  // Makes the parameters `prefix`qkv.weight [(heads + 2 kv_heads) head_dim, hidden] (query, key, value rows) and
  // `prefix`out.weight [hidden, heads * head_dim], with biases if options.bias (qkv.bias if options.qkv_bias says so), and those
  // of HeadNorm if options.qk_norm, and those of adapters. Throws Misuse if kv_heads does not divide heads, if heads does not
  // divide hidden where head_dim is 0, or if there are fewer heads than ranks. `path` names the options in messages.
  Attention(AttentionOptions options, const std::string& prefix, const std::string& path);

  // Returns attention(x) of the shape of x, plus `residual` if it is defined. x: [samples, seq, hidden]. Reads the batch's
  // "positions" and "segments" [samples, seq] int64 if it has them. Tokens attend only to tokens of their own segment.
  at::Tensor run(const MatmulInput& x, Context& context, const at::Tensor& residual = {}) const;
  // As LayerExtras::check_batch.
  void check_batch(const BatchField& batch) const;
  Params params() const { return joined({qkv_.params(), head_norm_ ? head_norm_->params() : Params(), out_.params()}); }
  const TensorAxis& tensor() const { return tensor_; }
  const ContextAxis& context_axis() const { return context_; }
  TokenScope token_scope() const { return options_.causal ? TokenScope::cached : TokenScope::all; }
  // As Layer's.
  std::optional<KvShape> kv_shape(const Coord& coord) const;
  // Returns what ContextAxis::load does.
  std::string load() const { return context_.load(options_.causal, options_.window); }

 private:
  void cut();
  void check_context(const std::string& path) const;
  bool needs_other_tokens(Context& context) const;
  // The query heads of a rank and the key heads that they need, among all.
  struct RankHeads {
    Share queries, keys;
    AttentionShape shape;
  };
  RankHeads heads_of_rank(int rank) const;
  MatmulInput attend(const at::Tensor& qkv, AttentionInputs inputs, Context& context) const;
  at::Tensor attend_cached(const at::Tensor& qkv, const AttentionInputs& inputs, KvCache& cache, Context& context) const;
  MatmulInput attend_again(const at::Tensor& qkv, AttentionInputs inputs, Context& context) const;
  at::Tensor project(const MatmulInput& x, AttentionInputs& inputs, Context& context) const;
  at::Tensor with_all_keys(const at::Tensor& qkv, const RankHeads& heads, Context& context) const;

  AttentionOptions options_;
  AttentionShape shape_;  // of all ranks
  TensorAxis tensor_;
  ContextAxis context_;
  // Whether each rank has the key heads of its query heads. If not, ranks compute some columns of the keys and values, and get
  // the others of the key heads that they need.
  bool has_own_keys_ = true;
  Affine qkv_, out_;
  std::optional<HeadNorm> head_norm_;
  std::shared_ptr<Rotary> rotary_;
};

}  // namespace zt::nn
