#include "block.h"

#include "layers.h"
#include "part.h"
#include "parts/function.h"
#include "zt/base/options.h"

namespace zt::nn {

AttentionBlock::AttentionBlock(const AttentionBlockOptions& options, const std::string& path)
    : norm1_(options.norm, options.hidden, options.eps, options.bias, "norm1."),
      attention_(options, "attention.", path),
      norm2_(options.norm, options.hidden, options.eps, options.bias, "norm2."),
      dropout_(options.dropout, kAttentionDropout) {}

Norm::Fork AttentionBlock::run(const at::Tensor& x, Context& context) const {
  const at::Tensor h = in_dtype_of(*attention_.params().front(), x, context);
  return norm2_.fork(add_branch(norm1_.fork(h, context), attention_, dropout_, context), context);
}

std::vector<at::Tensor> AttentionBlock::forward(at::TensorList in, Context& context) {
  const auto [normed, residual] = run(in[0], context);
  return {normed, residual};
}

namespace {

MlpOptions mlp_of(const BlockOptions& o) {
  return {o.hidden, o.ffn ? o.ffn : 4 * o.hidden, o.activation, o.bias, o.std, o.residual_std, o.tensor};
}

class ResidualLayer final : public Layer {
 public:
  explicit ResidualLayer(double dropout) : dropout_(dropout, kMlpDropout) {}
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    const at::Tensor &h = in[0], &residual = in[1];
    if (h.sizes() != residual.sizes() || !h.is_floating_point()) {
      misuse("a residual layer adds floating-point values of one shape, got h {} and residual {}", describe(h),
             describe(residual));
    }
    return {dropout_.run(h.to(residual.scalar_type()), context, residual)};
  }
  Io io() const override { return {.inputs = {"h", "residual"}, .outputs = {{"h"}}}; }
  std::string kind() const override { return "residual"; }

 private:
  Dropout dropout_;
};

}  // namespace

Block::Block(const BlockOptions& options, const std::string& path)
    : attention_block_(options, path), mlp_(mlp_of(options), "mlp.", path), mlp_dropout_(options.dropout, kMlpDropout) {}

at::Tensor Block::run(const at::Tensor& x, Context& context) const {
  return add_branch(attention_block_.run(x, context), mlp_, mlp_dropout_, context);
}

std::shared_ptr<Layer> residual_layer(double dropout) {
  return std::make_shared<ResidualLayer>(dropout);
}

std::shared_ptr<Layer> make_attention_block(const Value& value) {
  static const auto kSchema = attention_block_options(Schema<AttentionBlockOptions>("nn.attention_block"));
  return kSchema.make(value, [](const AttentionBlockOptions& o) { return std::make_shared<AttentionBlock>(o, kSchema.name()); });
}

std::shared_ptr<Layer> make_block(const Value& value) {
  static const auto kSchema = attention_block_options(Schema<BlockOptions>("nn.block"))
                                  .optional("ffn", &BlockOptions::ffn, "columns inside the MLP; 0: 4 * hidden", at_least(0))
                                  .optional("activation", &BlockOptions::activation, "activation of the MLP");
  return kSchema.make(value, [](const BlockOptions& o) { return layer_of("block", Block(o, kSchema.name())); });
}

std::shared_ptr<Layer> make_residual(const Value& value) {
  struct Options {
    double dropout = 0;
  };
  static const auto kSchema =
      Schema<Options>("nn.residual").optional("dropout", &Options::dropout, "dropout probability of h", between(0, 0.999));
  return kSchema.make(value, [](const Options& o) { return residual_layer(o.dropout); });
}

}  // namespace zt::nn
