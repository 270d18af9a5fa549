#include "lm_loss.h"

#include "head_function.h"
#include "layers/layers.h"

namespace zt::nn {

namespace {

class CrossEntropyOfLogits final : public LogitFunction {
 public:
  explicit CrossEntropyOfLogits(SoftmaxLoss loss) : loss_(std::move(loss)) {}
  void begin(int64_t rows, int64_t classes, const at::Tensor& like) override { loss_.begin(rows, classes, like); }
  void add(const at::Tensor& logits, int64_t first_row) override { loss_.add(logits, first_row); }
  std::vector<at::Tensor> total() override { return {loss_.total()}; }
  void gradient(const at::Tensor& logits, const std::vector<at::Tensor>& of_results, int64_t first_row) const override {
    loss_.gradient(logits, logits, of_results[0], first_row);
  }

 private:
  SoftmaxLoss loss_;
};

}  // namespace

std::vector<at::Tensor> LmLoss::forward(at::TensorList in, Context& context) {
  const at::Tensor h = head_.input(in[0], context);
  if (!has_loss_ || context.mode == Mode::generate) return {head_.logits(h, context)};
  auto loss = std::make_shared<CrossEntropyOfLogits>(
      SoftmaxLoss(context.batch("labels"), head_.ignore_index(), head_.class_share(context)));
  const auto sum = head_function(h, head_.tensor().crossing(h, context), head_.affine(), std::move(loss), head_.tile(), context);
  context.loss("loss", sum[0], Per::token);
  return {at::Tensor()};
}

std::shared_ptr<Layer> make_lm_loss(const Value& value) {
  static const auto kSchema =
      lm_head_options(Schema<LmLossOptions>("nn.lm_loss"))
          .optional("ignore_index", &LmLossOptions::ignore_index, "label of tokens that do not count")
          .only_with("with loss = true", [](const LmLossOptions& o) { return o.loss; })
          .optional("loss", &LmLossOptions::loss, "add the loss; if false, the logits are an output")
          .optional("tile", &LmLossOptions::tile, "rows whose logits exist at the same time in training; 0: all", at_least(0))
          .only_with("with loss = true", [](const LmLossOptions& o) { return o.loss; });
  return kSchema.make(value, [](const LmLossOptions& options) {
    return make_with_lora(options, kSchema.name(), {kHeadTarget}, {kHeadTarget},
                          [](const auto& o) { return std::make_shared<LmLoss>(o); });
  });
}

}  // namespace zt::nn
