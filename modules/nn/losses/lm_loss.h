// The last layer of a language model: final norm, head and cross-entropy.
#pragma once

#include <string>
#include <vector>

#include "lm_head.h"
#include "zt/model/layer_extras.h"

namespace zt::nn {

struct LmLossOptions : LmHeadOptions {
  bool loss = true;  // false: the layer outputs logits and adds no loss; the script has a loss of its own
};

// Takes h [samples, seq, hidden]. Reads the batch's "labels" [samples, seq] int64, which are already shifted by one token. Adds
// the loss "loss" per token. There is one buffer of logits [samples * seq, vocab]; the backward overwrites it with their
// gradient. With `tile`, the buffer has so many rows, and the backward computes the logits again. In mode generate, or without
// the loss, the output is logits [samples, seq, vocab]; otherwise the output is undefined. In mode generate the batch may have
// "logits_of" [samples, n] int64, places of tokens in a sample: then the output is the logits of these, [samples, n, vocab].
// Where the classes are cut over ranks, each has its columns of the logits, and only the output joins them (class_axis()). With
// sequence parallelism h has this rank's share of the tokens.
class LmLoss final : public Layer, public LayerExtras {
 public:
  explicit LmLoss(const LmLossOptions& options) : head_(options, "nn.lm_loss"), has_loss_(options.loss) {}

  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override;
  Params params() const override { return head_.params(); }
  Io io() const override {
    Io io{.inputs = {"h"}, .outputs = {{.name = "logits", .differentiable = !has_loss_}}};
    io.cut_inputs["h"] = head_.tensor().stream_axis();
    if (has_loss_) io.losses = {LossInfo{}};
    return io;
  }
  Counts count(const BatchField& batch) const override {
    return has_loss_ ? count_labels(batch, head_.ignore_index()) : Counts{};
  }
  void check_batch(const BatchField& batch, Mode mode) const override {
    head_.check_batch(batch, mode, has_loss_ && mode != Mode::generate);
  }
  std::vector<std::string> axes() const override { return head_.tensor().axes(); }
  std::vector<std::string> tensor_axes() const override { return head_.tensor().axes(); }
  std::string class_axis() const override { return head_.class_axis(); }
  TokenScope token_scope() const override { return TokenScope::separate; }
  std::string kind() const override { return "lm_loss"; }

 private:
  LmHead head_;
  bool has_loss_;
};

}  // namespace zt::nn
