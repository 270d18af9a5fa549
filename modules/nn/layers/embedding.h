// Token embedding, with learned positions if asked for.
#pragma once

#include "dropout.h"
#include "params.h"
#include "zt/model/layer.h"

namespace zt::nn {

struct EmbeddingOptions {
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t positions = 0;  // rows of the table of learned positions; 0: none
  double dropout = 0;
  double std = 0.02;
};

// Reads the batch's "tokens" [samples, seq] int64 and, for learned positions, its "positions" if there are any (else 0 .. seq -
// 1). Output h: [samples, seq, hidden] = weight[token] + positions[position], in the parameters' dtype. Misuse for a token or
// position out of range.
class Embedding final : public Layer {
 public:
  explicit Embedding(const EmbeddingOptions& options);

  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override;
  Params params() const override;
  Io io() const override { return {.inputs = {}, .outputs = {Output{}}}; }
  bool splits_backward() const override { return true; }
  std::string kind() const override { return "embedding"; }

  // The table of tokens, for a tied head.
  const std::shared_ptr<Param>& weight() const { return weight_; }

 private:
  std::shared_ptr<Param> weight_, positions_;
  Dropout dropout_;
};

}  // namespace zt::nn
