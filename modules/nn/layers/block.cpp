#include "block.h"

#include "function.h"
#include "layers.h"
#include "part.h"
#include "zt/base/options.h"

namespace zt::nn {

namespace {

// Dropout indices of the branches. The attention weights use index 0.
constexpr int kAttentionDropout = 1, kMlpDropout = 2;

AttentionOptions with_dropout(AttentionOptions options, double dropout) {
  options.dropout = dropout;
  return options;
}

}  // namespace

Block::Block(const BlockOptions& options, const std::string& path)
    : norm1_(parse_norm(options.norm), options.attention.hidden, options.eps, options.attention.bias, "norm1."),
      attention_(with_dropout(options.attention, options.dropout), "attention.", path),
      norm2_(parse_norm(options.norm), options.attention.hidden, options.eps, options.attention.bias, "norm2."),
      mlp_(options.mlp, "mlp."),
      attention_dropout_(options.dropout, kAttentionDropout),
      mlp_dropout_(options.dropout, kMlpDropout) {}

template <class Branch>
at::Tensor Block::add_branch(const at::Tensor& x, const Norm& norm, const Branch& branch, const Dropout& dropout,
                             Context& context) const {
  const auto [normed, residual] = norm.fork(x, context);
  if (dropout.is_active(context)) return dropout.run(branch.run(normed, context), context, residual);
  return branch.run(normed, context, residual);  // the branch's last matmul accumulates onto the residual
}

at::Tensor Block::run(const at::Tensor& x, Context& context) const {
  const at::Tensor h = in_dtype_of(*mlp_.params().front(), x);
  const at::Tensor middle = add_branch(h, norm1_, attention_, attention_dropout_, context);
  return add_branch(middle, norm2_, mlp_, mlp_dropout_, context);
}

Params Block::params() const {
  Params all = norm1_.params();
  append(all, attention_.params());
  append(all, norm2_.params());
  append(all, mlp_.params());
  return all;
}

namespace {

// The options of nn.block. ffn = 0 means 4 * hidden.
struct FlatOptions : AttentionOptions {
  int64_t ffn = 0;
  std::string norm = "layernorm", activation = "gelu_tanh";
  double eps = 1e-5;
};

BlockOptions nested(const FlatOptions& o) {
  BlockOptions block;
  block.attention = o;
  block.mlp = {o.hidden, o.ffn ? o.ffn : 4 * o.hidden, o.activation, o.bias, o.std, o.residual_std};
  block.norm = o.norm;
  block.eps = o.eps;
  block.dropout = o.dropout;
  return block;
}

}  // namespace

std::shared_ptr<Layer> make_block(const Value& value) {
  static const auto kSchema =
      attention_options(Schema<FlatOptions>("nn.block"), "dropout probability of both branches and the attention weights")
          .optional("ffn", &FlatOptions::ffn, "columns inside the MLP; 0: 4 * hidden", at_least(0))
          .optional("norm", &FlatOptions::norm, "norm before each branch", one_of(norm_names()))
          .optional("activation", &FlatOptions::activation, "activation of the MLP", one_of(activation_names()))
          .optional("eps", &FlatOptions::eps, "eps of the norms", at_least(0));
  return layer_of("block", Block(nested(kSchema.parse(value)), kSchema.name()));
}

}  // namespace zt::nn
