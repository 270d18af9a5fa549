// The final norm and the head of a language model.
#pragma once

#include <optional>
#include <string>

#include "norms/norm.h"
#include "parts/tensor_axis.h"
#include "softmax_loss.h"
#include "zt/base/options.h"
#include "zt/base/value.h"

namespace zt::nn {

struct LmHeadOptions : TensorAxisOptions {
  int64_t vocab = 0;
  int64_t hidden = 0;
  NormKind norm = NormKind::layernorm;
  double eps = 1e-5;
  bool norm_bias = true;
  bool bias = false;  // add a bias in the head
  int64_t ignore_index = -100;
  double std = 0.02;          // standard deviation of the head's initial weights
  int64_t tile = 0;           // rows whose logits exist at the same time in training and evaluation; 0: all
  bool reads_tokens = false;  // a label for each of the batch's tokens, as in nn.gpt: their shape is checked before the step
  std::optional<LoraOptions> lora = {};
  Value tied;  // an nn.embedding layer or a Param [vocab, hidden] that the head uses as weights; nil: own weights
};

// Adds the options of LmHeadOptions to a schema. Options derives from LmHeadOptions.
template <class Options>
Schema<Options>&& lm_head_options(Schema<Options>&& schema) {
  return stream_options(tensor_options(std::move(schema), "the classes are cut"))
      .required("vocab", &Options::vocab, "number of classes", at_least(1))
      .required("hidden", &Options::hidden, "columns of the input", at_least(1))
      .optional("norm", &Options::norm, "norm before the head")
      .optional("eps", &Options::eps, "eps of the norm", at_least(0))
      .only_with("with a norm", [](const Options& o) { return o.norm != NormKind::none; })
      .optional("norm_bias", &Options::norm_bias, "add a bias in the norm")
      .only_with("with norm = \"layernorm\"", [](const Options& o) { return o.norm == NormKind::layernorm; })
      .optional("bias", &Options::bias, "add a bias in the head")
      .optional("lora", &Options::lora, "an adapter of the head, which is frozen")
      .optional("std", &Options::std, "standard deviation of the head's initial weights", at_least(0))
      .only_with("without tied", [](const Options& o) { return o.tied.is_nil(); })
      .optional("tied", &Options::tied, "the embedding that shares its weights with the head");
}

class LmHead {
 public:
  // `path`: the name of the layer's function, for messages. Throws Misuse if the tied weights do not fit.
  LmHead(const LmHeadOptions& options, const std::string& path);

  // Returns what the layer's matmul takes: of h [samples, tokens, hidden], the tokens that the batch's `logits_of` names in mode
  // generate, else all, after the norm.
  at::Tensor input(const at::Tensor& h, Context& context) const;
  // Returns the logits of all classes from such an input, or of the rank's own ones if the cache wants these.
  at::Tensor logits(const at::Tensor& input, Context& context) const;
  // Returns which classes this rank has; nothing if all.
  std::optional<ClassShare> class_share(Context& context) const;
  // Throws Misuse for labels or places of logits that do not fit the batch. `has_labels`: whether the layer reads labels.
  void check_batch(const BatchField& batch, Mode mode, bool has_labels) const;

  Params params() const { return joined({norm_.params(), head_.params()}); }
  const Affine& affine() const { return head_; }
  const TensorAxis& tensor() const { return tensor_; }
  // As LayerExtras::class_axis.
  std::string class_axis() const { return tensor_.is_cut() ? tensor_.name() : ""; }
  int64_t ignore_index() const { return ignore_index_; }
  int64_t tile() const { return tile_; }

 private:
  std::string path_;
  Norm norm_;
  Affine head_;
  TensorAxis tensor_;
  int64_t ignore_index_, tile_;
  bool reads_tokens_;
};

}  // namespace zt::nn
