// A transformer block as one layer, so its parameters form one unit and it is recomputed as a whole:
// h += dropout(attention(norm1(h))), then h += dropout(mlp(norm2(h))).
#pragma once

#include <string>

#include "attention.h"
#include "dropout.h"
#include "mlp.h"
#include "norms/norm.h"

namespace zt::nn {

struct BlockOptions {
  AttentionOptions attention;
  MlpOptions mlp;
  std::string norm = "layernorm";
  double eps = 1e-5;
  double dropout = 0;  // probability for both branches and for the attention weights
};

class Block {
 public:
  static constexpr bool kSplits = true;

  // Makes the parameters norm1.*, attention.*, norm2.*, mlp.*. `path` names the options in messages.
  Block(const BlockOptions& options, const std::string& path);

  // x: [samples, seq, hidden]. Returns a tensor of the same shape.
  at::Tensor run(const at::Tensor& x, Context& context) const;
  Params params() const;

 private:
  template <class Branch>
  at::Tensor add_branch(const at::Tensor& x, const Norm& norm, const Branch& branch, const Dropout& dropout,
                        Context& context) const;

  Norm norm1_;
  Attention attention_;
  Norm norm2_;
  Mlp mlp_;
  Dropout attention_dropout_, mlp_dropout_;
};

}  // namespace zt::nn
