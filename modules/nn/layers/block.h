// A transformer block as one layer, so its parameters form one unit and it is recomputed as a whole:
// h += dropout(attention(norm1(h))), then h += dropout(mlp(norm2(h))).
#pragma once

#include <string>

#include "attention_block.h"
#include "mlp.h"

namespace zt::nn {

struct BlockOptions : AttentionBlockOptions {
  int64_t ffn = 0;  // columns inside the MLP; 0: 4 * hidden
  Activation activation = Activation::gelu_tanh;
};

class Block {
 public:
  static constexpr bool kSplits = true;

  // Makes the parameters norm1.*, attention.*, norm2.*, mlp.*. `path` names the options in messages.
  Block(const BlockOptions& options, const std::string& path);

  // x: [samples, seq, hidden]. Returns a tensor of the same shape.
  at::Tensor run(const at::Tensor& x, Context& context) const;
  Params params() const { return joined({attention_block_.params(), mlp_.params()}); }

 private:
  AttentionBlock attention_block_;
  Mlp mlp_;
  Dropout mlp_dropout_;
};

}  // namespace zt::nn
