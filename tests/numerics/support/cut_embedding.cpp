#include "numerics/support/cut_embedding.h"

#include <ATen/ATen.h>

#include "layers/layers.h"
#include "numerics/support/training.h"

namespace zt::test {

namespace {

constexpr int64_t kHidden = 24;

// Looks up the tokens whose rows this rank has, and sums over the ranks: all other ranks add zeros.
class CutEmbedding : public Layer {
 public:
  explicit CutEmbedding(int parts) : parts_(parts), weight_(std::make_shared<Param>()) {
    weight_->name = "weight";
    weight_->shape = {(kVocab + 1) / parts, kHidden};
    weight_->init = init_normal(0, 0.5);
    if (parts > 1) weight_->placements = {{"tp", Placement::sharded, 0, parts}};
  }

  std::vector<at::Tensor> forward(at::TensorList, Context& context) override {
    const int rank = parts_ > 1 ? context.comm("tp").rank() : 0;
    const at::Tensor tokens = context.batch("tokens") - rank * weight_->shape[0];
    const at::Tensor is_mine = (tokens >= 0).logical_and(tokens < weight_->shape[0]);
    const at::Tensor rows = at::embedding(context.param(*weight_), tokens.clamp(0, weight_->shape[0] - 1));
    const at::Tensor mine = at::where(is_mine.unsqueeze(-1), rows, at::zeros_like(rows));
    if (parts_ == 1) return {mine};
    const at::Tensor sum = mine.detach().contiguous().clone();
    context.comm("tp").all_reduce(sum.view({-1}), sum.view({-1})).synchronize();
    return {mine + (sum - mine.detach())};  // one of the terms is zero, so this is the sum; its gradient is that of `mine`
  }
  Io io() const override { return {.inputs = {}, .outputs = {Output{}}}; }
  Params params() const override { return {weight_}; }
  std::vector<std::string> axes() const override {
    return parts_ > 1 ? std::vector<std::string>{"tp"} : std::vector<std::string>{};
  }
  std::string kind() const override { return "cut_embedding"; }

 private:
  int parts_;
  std::shared_ptr<Param> weight_;
};

}  // namespace

std::shared_ptr<Model> make_cut_model(int parts) {
  const auto block = [] { return nn::make_block(Value::Table{{"hidden", kHidden}, {"heads", 3}}); };
  return std::make_shared<Model>(
      std::vector<NamedLayer>{{"embedding", std::make_shared<CutEmbedding>(parts)},
                              {"blocks.0", block()},
                              {"blocks.1", block()},
                              {"head", nn::make_lm_loss(Value::Table{{"vocab", kVocab + 1}, {"hidden", kHidden}})}},
      5);
}

}  // namespace zt::test
