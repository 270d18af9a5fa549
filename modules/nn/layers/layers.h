// Makes the layers of this module from their option tables. Throws Misuse if options are wrong.
#pragma once

#include <memory>

#include "zt/base/value.h"
#include "zt/model/layer.h"
#include "zt/model/model.h"

namespace zt::nn {

std::shared_ptr<Layer> make_linear(const Value& options);
std::shared_ptr<Layer> make_embedding(const Value& options);
std::shared_ptr<Layer> make_layernorm(const Value& options);
std::shared_ptr<Layer> make_rmsnorm(const Value& options);
std::shared_ptr<Layer> make_attention(const Value& options);
std::shared_ptr<Layer> make_attention_block(const Value& options);
std::shared_ptr<Layer> make_mlp(const Value& options);
std::shared_ptr<Layer> make_grouped_mlp(const Value& options);
std::shared_ptr<Layer> make_dropout(const Value& options);
std::shared_ptr<Layer> make_block(const Value& options);
std::shared_ptr<Layer> make_residual(const Value& options);
std::shared_ptr<Layer> make_lm_loss(const Value& options);
std::shared_ptr<Layer> make_lm_logprobs(const Value& options);
std::shared_ptr<Layer> make_value_head(const Value& options);
std::shared_ptr<Layer> make_cross_entropy(const Value& options);

// Makes a whole language model with the layers embedding, blocks.0 .., head. A block whose MLP the script gives consists of the
// layers blocks.N, those of the script as blocks.N.NAME, and blocks.N.add.
std::shared_ptr<Model> make_gpt(const Value& options);

}  // namespace zt::nn
