// The layer cross_entropy: the loss of logits that an earlier layer computed.
#include "layers/layers.h"
#include "parts/function.h"
#include "softmax_loss.h"
#include "zt/base/options.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"
#include "zt/model/layer_extras.h"

namespace zt::nn {

namespace {

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& x, SoftmaxLoss loss) {
    const at::Tensor logits = as_rows(x);
    at::Tensor sum = loss.sum(logits);
    node->save_for_backward({logits});
    keep(node, std::move(loss));
    return sum;
  }
  static variable_list backward(AutogradContext* node, variable_list grads) {
    const at::Tensor logits = node->get_saved_variables()[0], out = at::empty_like(logits);
    kept<SoftmaxLoss>(node).gradient(out, logits, grads[0]);
    return {out, {}};
  }
};

struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  int64_t classes = INT64_MAX;  // not known
};

class CrossEntropy final : public Layer, public LayerExtras {
 public:
  explicit CrossEntropy(CrossEntropyOptions options) : options_(std::move(options)) {}

  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    if (context.mode == Mode::generate) return {};
    const at::Tensor& logits = in[0];
    if (logits.dim() < 2) misuse("nn.cross_entropy takes logits [..., classes], got {}", describe(logits));
    if (options_.classes != INT64_MAX && logits.size(-1) != options_.classes)
      misuse("nn.cross_entropy takes logits of its {} classes, got {}", options_.classes, describe(logits));
    const at::Tensor rows = logits.reshape({-1, logits.size(-1)});
    const SoftmaxLoss loss(context.batch("labels"), options_.ignore_index);
    context.loss("loss", run_function<CrossEntropyFunction>(rows, loss), Per::token);
    return {};
  }
  Io io() const override { return {.inputs = {"h"}, .outputs = {}, .losses = {LossInfo{}}}; }
  Counts count(const BatchField& batch) const override { return count_labels(batch, options_.ignore_index); }
  void check_batch(const BatchField& batch, Mode mode) const override {
    const at::Tensor labels = batch("labels");
    if (mode != Mode::generate && labels.defined() && !labels.is_meta())
      check_labels(labels, options_.ignore_index, options_.classes);
  }
  TokenScope token_scope() const override { return TokenScope::separate; }
  std::string kind() const override { return "cross_entropy"; }

 private:
  CrossEntropyOptions options_;
};

}  // namespace

std::shared_ptr<Layer> make_cross_entropy(const Value& value) {
  static const auto kSchema =
      Schema<CrossEntropyOptions>("nn.cross_entropy")
          .optional("ignore_index", &CrossEntropyOptions::ignore_index, "label of rows that do not count")
          .optional("classes", &CrossEntropyOptions::classes,
                    "number of classes; with it a label that is too large is found before the step begins", at_least(1));
  return kSchema.make(value, [](const CrossEntropyOptions& o) { return std::make_shared<CrossEntropy>(o); });
}

}  // namespace zt::nn
