// The last layer of a language model: final norm, head and cross-entropy.
#pragma once

#include <string>

#include "norms/norm.h"
#include "parts/tensor_axis.h"
#include "softmax_loss.h"
#include "zt/base/value.h"
#include "zt/model/layer_extras.h"

namespace zt::nn {

struct LmLossOptions : TensorAxisOptions {
  int64_t vocab = 0;
  int64_t hidden = 0;
  NormKind norm = NormKind::layernorm;
  double eps = 1e-5;
  bool norm_bias = true;
  bool bias = false;  // add a bias in the head
  int64_t ignore_index = -100;
  double std = 0.02;          // standard deviation of the head's initial weights
  bool loss = true;           // false: the layer outputs logits and adds no loss; the script has a loss of its own
  int64_t tile = 0;           // rows whose logits exist at the same time in training and evaluation; 0: all
  bool reads_tokens = false;  // a label for each of the batch's tokens, as in nn.gpt: their shape is checked before the step
  std::optional<LoraOptions> lora = {};
  Value tied;  // an nn.embedding layer or a Param [vocab, hidden] that the head uses as weights; nil: own weights
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
  explicit LmLoss(const LmLossOptions& options);

  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override;
  Params params() const override { return joined({norm_.params(), head_.params()}); }
  Io io() const override {
    Io io{.inputs = {"h"}, .outputs = {{.name = "logits", .differentiable = !has_loss_}}};
    io.cut_inputs["h"] = tensor_.stream_axis();
    if (has_loss_) io.losses = {LossInfo{}};
    return io;
  }
  Counts count(const BatchField& batch) const override;
  void check_batch(const BatchField& batch, Mode mode) const override;
  std::vector<std::string> axes() const override { return tensor_.axes(); }
  std::vector<std::string> tensor_axes() const override { return tensor_.axes(); }
  std::string class_axis() const override { return tensor_.is_cut() ? tensor_.name() : ""; }
  TokenScope token_scope() const override { return TokenScope::separate; }
  std::string kind() const override { return "lm_loss"; }

 private:
  at::Tensor logits(const at::Tensor& h, Context& context) const;
  std::optional<ClassShare> class_share(Context& context) const;

  Norm norm_;
  Affine head_;
  TensorAxis tensor_;
  int64_t ignore_index_;
  bool has_loss_;
  bool reads_tokens_;
  int64_t tile_;
};

}  // namespace zt::nn
