#include "lm_logprobs.h"

#include "head_function.h"
#include "label_logprobs.h"
#include "layers/layers.h"
#include "zt/model/layer_extras.h"

namespace zt::nn {

namespace {

// Takes h [samples, seq, hidden] and the batch's labels [samples, seq]. Outputs `logprobs` and, if wanted, `entropy`, each
// [samples, seq]. In mode generate, for a batch without labels, each output is the logits, as those of nn.lm_loss.
class LmLogprobs final : public Layer, public LayerExtras {
 public:
  explicit LmLogprobs(const LmLogprobsOptions& options)
      : head_(options, "nn.lm_logprobs"), temperature_(options.temperature), has_entropy_(options.entropy) {}

  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    const at::Tensor h = head_.input(in[0], context);
    if (context.mode == Mode::generate && !context.has_batch("labels"))
      return std::vector<at::Tensor>(has_entropy_ ? 2 : 1, head_.logits(h, context));
    const at::Tensor labels = context.batch("labels");
    auto function =
        std::make_shared<LabelLogprobs>(labels, head_.ignore_index(), temperature_, has_entropy_, head_.class_share(context));
    std::vector<at::Tensor> results =
        head_function(h, head_.tensor().crossing(h, context), head_.affine(), std::move(function), head_.tile(), context);
    for (at::Tensor& result : results) result = result.view(labels.sizes());
    return results;
  }
  Params params() const override { return head_.params(); }
  Io io() const override {
    Io io{.inputs = {"h"}, .outputs = {{.name = "logprobs"}}};
    io.cut_inputs["h"] = head_.tensor().stream_axis();
    if (has_entropy_) io.outputs.push_back({.name = "entropy"});
    return io;
  }
  void check_batch(const BatchField& batch, Mode mode) const override { head_.check_batch(batch, mode, true); }
  std::vector<std::string> axes() const override { return head_.tensor().axes(); }
  std::vector<std::string> tensor_axes() const override { return head_.tensor().axes(); }
  std::string class_axis() const override { return head_.class_axis(); }
  TokenScope token_scope() const override { return TokenScope::separate; }
  std::string kind() const override { return "lm_logprobs"; }

 private:
  LmHead head_;
  double temperature_;
  bool has_entropy_;
};

}  // namespace

std::shared_ptr<Layer> lm_logprobs_layer(const LmLogprobsOptions& options) {
  return std::make_shared<LmLogprobs>(options);
}

std::shared_ptr<Layer> make_lm_logprobs(const Value& value) {
  static const auto kSchema =
      lm_head_options(Schema<LmLogprobsOptions>("nn.lm_logprobs"))
          .optional("ignore_index", &LmLogprobsOptions::ignore_index, "label of tokens whose log-probability is not wanted")
          .optional("tile", &LmLogprobsOptions::tile, "rows whose logits exist at the same time; 0: all", at_least(0))
          .optional("temperature", &LmLogprobsOptions::temperature, "divides the logits", between(1e-6, 1e6))
          .optional("entropy", &LmLogprobsOptions::entropy, "output the entropies of the distributions, too");
  return kSchema.make(value, [](const LmLogprobsOptions& options) {
    return make_with_lora(options, kSchema.name(), {kHeadTarget}, {kHeadTarget}, lm_logprobs_layer);
  });
}

}  // namespace zt::nn
