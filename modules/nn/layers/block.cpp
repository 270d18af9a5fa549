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
      dropout_(options.dropout, kAttentionDropout, options.recompute),
      recompute_(options.recompute) {
  tensor().sum_over_stream(joined({norm1_.params(), norm2_.params()}));
}

Io AttentionBlock::io() const {
  Io io{.inputs = {"h"}, .outputs = {{"h"}, {"residual"}}};
  io.cut_inputs["h"] = io.outputs[1].cut_over = tensor().stream_axis();
  return io;
}

Norm::Fork AttentionBlock::run(const at::Tensor& x, Context& context) const {
  const at::Tensor h = in_dtype_of(*attention_.params().front(), x, context);
  const at::Tensor y = add_branch(norm1_.fork(h, context, recompute_), attention_, dropout_, context);
  return norm2_.fork(y, context, recompute_);
}

std::vector<at::Tensor> AttentionBlock::forward(at::TensorList in, Context& context) {
  const auto [normed, residual] = run(in[0], context);
  return {tensor().show(normed.value, context), residual};
}

namespace {

MlpOptions mlp_of(const BlockOptions& o) {
  MlpOptions mlp;
  static_cast<TensorAxisOptions&>(mlp) = o;
  mlp.hidden = o.hidden;
  mlp.ffn = o.ffn ? o.ffn : 4 * o.hidden;
  mlp.activation = o.activation;
  mlp.bias = o.bias;
  mlp.std = o.std;
  mlp.residual_std = o.residual_std;
  mlp.tile = o.mlp_tile;
  mlp.lora = o.lora;
  return mlp;
}

class ResidualLayer final : public Layer, public LayerExtras {
 public:
  explicit ResidualLayer(const ResidualOptions& options)
      : dropout_(options.dropout, kMlpDropout, options.recompute), tensor_(options, "nn.residual") {}
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    const at::Tensor h = tensor_.take(in[0], context), &residual = in[1];
    if (h.sizes() != residual.sizes() || !h.is_floating_point()) {
      misuse("a residual layer adds floating-point values of one shape, got h {} and residual {}", describe(h),
             describe(residual));
    }
    return {dropout_.run(in_dtype(residual.scalar_type(), h), context, residual, tensor_.own_tokens(context))};
  }
  Io io() const override {
    Io io{.inputs = {"h", "residual"}};
    io.cut_inputs["residual"] = io.outputs.front().cut_over = tensor_.stream_axis();
    return io;
  }
  std::vector<std::string> axes() const override { return tensor_axes(); }
  std::vector<std::string> tensor_axes() const override { return tensor_.axes(); }
  TokenScope token_scope() const override { return TokenScope::separate; }
  std::string kind() const override { return "residual"; }

 private:
  Dropout dropout_;
  TensorAxis tensor_;
};

}  // namespace

Block::Block(const BlockOptions& options, const std::string& path)
    : attention_block_(options, path),
      mlp_(mlp_of(options), "mlp.", path),
      mlp_dropout_(options.dropout, kMlpDropout, options.recompute) {}

at::Tensor Block::run(const at::Tensor& x, Context& context) const {
  return add_branch(attention_block_.run(x, context), mlp_, mlp_dropout_, context);
}

std::shared_ptr<Layer> residual_layer(const ResidualOptions& options) {
  return std::make_shared<ResidualLayer>(options);
}

std::shared_ptr<Layer> make_attention_block(const Value& value) {
  static const auto kSchema = attention_block_options(Schema<AttentionBlockOptions>("nn.attention_block"));
  return kSchema.make(value, [](const AttentionBlockOptions& options) {
    return make_with_lora(options, kSchema.name(), kAttentionTargets, kUsualTargets,
                          [](const auto& o) { return std::make_shared<AttentionBlock>(o, kSchema.name()); });
  });
}

std::shared_ptr<Layer> make_block(const Value& value) {
  static const auto kSchema = attention_block_options(Schema<BlockOptions>("nn.block"))
                                  .optional("ffn", &BlockOptions::ffn, "columns inside the MLP; 0: 4 * hidden", at_least(0))
                                  .optional("activation", &BlockOptions::activation, "activation of the MLP")
                                  .optional("mlp_tile", &BlockOptions::mlp_tile,
                                            "rows whose columns inside the MLP exist at the same time; 0: all", at_least(0));
  return kSchema.make(value, [](const BlockOptions& options) {
    return make_with_lora(options, kSchema.name(), block_targets(), kUsualTargets,
                          [](const auto& o) { return layer_of("block", Block(o, kSchema.name())); });
  });
}

std::shared_ptr<Layer> make_residual(const Value& value) {
  static const auto kSchema =
      stream_options(tensor_option(Schema<ResidualOptions>("nn.residual"), "the matrices of the blocks are cut"))
          .optional("dropout", &ResidualOptions::dropout, "dropout probability of h", between(0, 0.999))
          .optional("recompute", &ResidualOptions::recompute, "what the backward computes again; selective: dropout's draws");
  return kSchema.make(value, residual_layer);
}

}  // namespace zt::nn
