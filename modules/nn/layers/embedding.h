// Token embedding, optionally with learned positions.
#pragma once

#include "parts/dropout.h"
#include "parts/params.h"
#include "parts/tensor_axis.h"
#include "zt/model/layer_extras.h"

namespace zt::nn {

struct EmbeddingOptions : TensorAxisOptions {
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t positions = 0;  // rows of the table of learned positions; 0 means no learned positions
  double dropout = 0;
  double std = 0.02;
};

// Reads the batch's "tokens" [samples, seq] int64. For learned positions, also reads its "positions" if it has them, else uses 0
// .. seq - 1. Outputs h [samples, seq, hidden] = weight[token] + positions[position] in the parameters' dtype. Throws Misuse for
// a token or position that is out of range. With sequence parallelism h has this rank's share of the tokens.
class Embedding final : public Layer, public LayerExtras {
 public:
  explicit Embedding(const EmbeddingOptions& options);

  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override;
  Params params() const override { return positions_ ? Params{weight_, positions_} : Params{weight_}; }
  Io io() const override {
    Io io{.inputs = {}};
    io.outputs.front().cut_over = tensor_.stream_axis();
    return io;
  }
  void check_batch(const BatchField& batch, Mode mode) const override;
  std::vector<std::string> axes() const override { return tensor_.axes(); }
  std::vector<std::string> tensor_axes() const override { return tensor_.axes(); }
  TokenScope token_scope() const override { return TokenScope::separate; }
  std::string kind() const override { return "embedding"; }

  // Returns the table of tokens, for a tied head.
  const std::shared_ptr<Param>& weight() const { return weight_; }

 private:
  at::Tensor token_rows(const at::Tensor& tokens, Context& context) const;
  at::Tensor places_of(const at::Tensor& tokens, std::optional<Share> own, Context& context) const;

  std::shared_ptr<Param> weight_, positions_;
  TensorAxis tensor_;
  Dropout dropout_;
};

}  // namespace zt::nn
