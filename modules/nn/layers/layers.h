// The layers of this module, each from its table of options. Misuse for options that do not fit.
#pragma once

#include <memory>
#include <vector>

#include "zt/base/value.h"
#include "zt/model/layer.h"
#include "zt/model/model.h"

namespace zt::nn {

std::shared_ptr<Layer> make_linear(const Value& options);
std::shared_ptr<Layer> make_embedding(const Value& options);
std::shared_ptr<Layer> make_layernorm(const Value& options);
std::shared_ptr<Layer> make_rmsnorm(const Value& options);
std::shared_ptr<Layer> make_attention(const Value& options);
std::shared_ptr<Layer> make_mlp(const Value& options);
std::shared_ptr<Layer> make_dropout(const Value& options);
std::shared_ptr<Layer> make_block(const Value& options);
std::shared_ptr<Layer> make_lm_loss(const Value& options);
std::shared_ptr<Layer> make_cross_entropy(const Value& options);

// A whole language model: embedding, blocks.0 .., head.
std::shared_ptr<Model> make_gpt(const Value& options);

}  // namespace zt::nn
