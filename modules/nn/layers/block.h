// A transformer block: h += dropout(attention(norm1(h))), then h += dropout(mlp(norm2(h))). nn.block is all of it as one layer,
// so its parameters form one unit and it is recomputed as a whole. nn.attention_block is its first part, up to the input of the
// MLP; as a layer of its own it stands before an MLP that consists of several layers, and nn.residual after it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention.h"
#include "mlp.h"
#include "norms/norm.h"
#include "parts/dropout.h"
#include "zt/model/layer_extras.h"

namespace zt::nn {

// Dropout indices of a block's branches. The attention weights use index 0.
inline constexpr int kAttentionDropout = 1, kMlpDropout = 2;

struct AttentionBlockOptions : AttentionOptions {
  NormKind norm = NormKind::layernorm;
  double eps = 1e-5;  // of both norms
};

// Adds the options of AttentionBlockOptions to a schema. Options derives from AttentionBlockOptions.
template <class Options>
Schema<Options>&& attention_block_options(Schema<Options>&& schema) {
  return stream_options(attention_options(std::move(schema), "dropout probability of both branches and the attention weights"))
      .optional("norm", &Options::norm, "norm before each branch")
      .optional("eps", &Options::eps, "eps of the norms", at_least(0))
      .only_with("with a norm", [](const Options& o) { return o.norm != NormKind::none; });
}

// Returns fork.x + dropout(branch(fork.normed)).
template <class Branch>
at::Tensor add_branch(const Norm::Fork& fork, const Branch& branch, const Dropout& dropout, Context& context) {
  if (dropout.is_active(context))
    return dropout.run(branch.run(fork.normed, context), context, fork.x, branch.tensor().own_tokens(context));
  return branch.run(fork.normed, context, fork.x);  // the branch's last matmul accumulates onto the residual
}

// A layer that reads `h` and outputs `h` = norm2(y) and `residual` = y: see run. With sequence parallelism `h` has all tokens,
// for layers that need not know of it.
class AttentionBlock final : public Layer, public LayerExtras {
 public:
  // Makes the parameters norm1.*, attention.*, norm2.*. `path` names the options in messages.
  AttentionBlock(const AttentionBlockOptions& options, const std::string& path);

  // Computes y = x + dropout(attention(norm1(x))). Returns norm2(y) for the MLP, and y for the residual. x: [samples, seq,
  // hidden]; both results have this shape.
  Norm::Fork run(const at::Tensor& x, Context& context) const;
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override;
  Io io() const override;
  std::vector<std::string> axes() const override { return context_axis().with(tensor_axes()); }
  std::vector<std::string> tensor_axes() const override { return tensor().axes(); }
  std::optional<TokenCut> token_cut() const override { return context_axis().token_cut(); }
  bool needs_whole_samples() const override { return !context_axis().is_cut(); }
  std::string assumption() const override { return load(); }
  void check_batch(const BatchField& batch, Mode /*mode*/) const override { check_batch(batch); }
  void check_batch(const BatchField& batch) const { attention_.check_batch(batch); }
  const TensorAxis& tensor() const { return attention_.tensor(); }
  const ContextAxis& context_axis() const { return attention_.context_axis(); }
  std::string load() const { return attention_.load(); }
  TokenScope token_scope() const override { return attention_.token_scope(); }
  std::optional<KvShape> kv_shape(const Coord& coord) const override { return attention_.kv_shape(coord); }
  std::string kind() const override { return "attention_block"; }
  Params params() const override { return joined({norm1_.params(), attention_.params(), norm2_.params()}); }

 private:
  Norm norm1_;
  Attention attention_;
  Norm norm2_;
  Dropout dropout_;
  LayerRecompute recompute_;
};

struct BlockOptions : AttentionBlockOptions {
  int64_t ffn = 0;  // columns inside the MLP; 0: 4 * hidden
  Activation activation = Activation::gelu_tanh;
  int64_t mlp_tile = 0;  // MlpOptions::tile
};

class Block {
 public:
  // Makes the parameters norm1.*, attention.*, norm2.*, mlp.*. `path` names the options in messages.
  Block(const BlockOptions& options, const std::string& path);

  // x: [samples, seq, hidden]. Returns a tensor of the same shape.
  at::Tensor run(const at::Tensor& x, Context& context) const;
  Params params() const { return joined({attention_block_.params(), mlp_.params()}); }
  const TensorAxis& tensor() const { return attention_block_.tensor(); }
  const ContextAxis& context_axis() const { return attention_block_.context_axis(); }
  std::string load() const { return attention_block_.load(); }
  TokenScope token_scope() const { return attention_block_.token_scope(); }
  std::optional<KvShape> kv_shape(const Coord& coord) const { return attention_block_.kv_shape(coord); }
  void check_batch(const BatchField& batch) const { attention_block_.check_batch(batch); }

 private:
  AttentionBlock attention_block_;
  Mlp mlp_;
  Dropout mlp_dropout_;
};

struct ResidualOptions : TensorAxisOptions {
  double dropout = 0;
  LayerRecompute recompute = LayerRecompute::none;
};

// Makes a layer that reads `h` and `residual` and outputs `h` = residual + dropout(h). Throws Misuse, when it runs, if the inputs
// have different shapes or `h` is not floating-point. The result has the dtype of `residual`. With sequence parallelism `h` has
// all tokens, `residual` and the result those of this rank.
std::shared_ptr<Layer> residual_layer(const ResidualOptions& options);

}  // namespace zt::nn
