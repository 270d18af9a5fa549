// The end of a language model in one layer: final norm, head and cross-entropy.
#pragma once

#include <memory>
#include <string>

#include "layers/affine.h"
#include "layers/norm.h"
#include "zt/base/value.h"

namespace zt::nn {

struct LmLossOptions {
  int64_t vocab = 0;
  int64_t hidden = 0;
  std::string norm = "layernorm";
  double eps = 1e-5;
  bool norm_bias = true;
  bool bias = false;  // of the head
  int64_t ignore_index = -100;
  double std = 0.02;  // of the head's initial weights
  bool loss = true;   // false: no loss; the output logits are for a loss of the script's own
  Value tied;         // an nn.embedding layer or a Param: the head's weights [vocab, hidden] are that one; nil: its own
};

// Input h: [samples, seq, hidden]; reads the batch's "labels" [samples, seq] int64 (already shifted) and adds the loss "loss" per
// token. The logits [samples * seq, vocab] exist once: the backward turns them into their gradient in place. Generating, or
// without the loss: output logits [samples, seq, vocab]; otherwise that output is undefined.
class LmLoss final : public Layer {
 public:
  explicit LmLoss(const LmLossOptions& options);

  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override;
  Params params() const override;
  Io io() const override { return {.inputs = {"h"}, .outputs = {{.name = "logits", .differentiable = !has_loss_}}}; }
  bool splits_backward() const override { return true; }
  Counts count(const std::function<at::Tensor(const std::string&)>& batch) const override;
  std::string kind() const override { return "lm_loss"; }

 private:
  Norm norm_;
  Affine head_;
  int64_t ignore_index_;
  bool has_loss_;
};

}  // namespace zt::nn
