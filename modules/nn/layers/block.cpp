#include "block.h"

#include "layers.h"
#include "part.h"
#include "zt/base/options.h"

namespace zt::nn {

namespace {

MlpOptions mlp_of(const BlockOptions& o) {
  return {o.hidden, o.ffn ? o.ffn : 4 * o.hidden, o.activation, o.bias, o.std, o.residual_std};
}

}  // namespace

Block::Block(const BlockOptions& options, const std::string& path)
    : attention_block_(options, path), mlp_(mlp_of(options), "mlp."), mlp_dropout_(options.dropout, kMlpDropout) {}

at::Tensor Block::run(const at::Tensor& x, Context& context) const {
  return add_branch(attention_block_.run(x, context), mlp_, mlp_dropout_, context);
}

std::shared_ptr<Layer> make_block(const Value& value) {
  static const auto kSchema = attention_block_options(Schema<BlockOptions>("nn.block"))
                                  .optional("ffn", &BlockOptions::ffn, "columns inside the MLP; 0: 4 * hidden", at_least(0))
                                  .optional("activation", &BlockOptions::activation, "activation of the MLP");
  return kSchema.make(value, [](const BlockOptions& o) { return layer_of("block", Block(o, kSchema.name())); });
}

}  // namespace zt::nn
