#include "numerics/support/cut_model.h"

#include <ATen/ATen.h>

#include "layers/layers.h"
#include "numerics/support/training.h"
#include "zt/model/axis_ops.h"

namespace zt::test {

namespace {

constexpr int64_t kHidden = 24, kFfn = 21;

// Looks up the tokens whose rows this rank has, and sums over the ranks: all other ranks add zeros.
class CutEmbedding : public Layer {
 public:
  explicit CutEmbedding(int parts) : parts_(parts), weight_(std::make_shared<Param>()) {
    weight_->name = "weight";
    weight_->shape = {kVocab + 1, kHidden};
    weight_->init = init_normal(0, 0.5);
    if (parts > 1) weight_->placements = {{"tp", Placement::sharded, 0, parts}};
  }

  std::vector<at::Tensor> forward(at::TensorList, Context& context) override {
    const Share share = share_of(kVocab + 1, parts_, parts_ > 1 ? context.rank_along("tp") : 0);
    if (share.count == 0)
      return {reduce_from(context, "tp", at::zeros({kSamples, kSeq, kHidden}, context.param(*weight_).options()))};
    const at::Tensor tokens = context.batch("tokens") - share.begin;
    const at::Tensor is_mine = (tokens >= 0).logical_and(tokens < share.count);
    const at::Tensor rows = at::embedding(context.param(*weight_), tokens.clamp(0, share.count - 1));
    const at::Tensor mine = at::where(is_mine.unsqueeze(-1), rows, at::zeros_like(rows));
    return {parts_ == 1 ? mine : reduce_from(context, "tp", mine)};
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

// h + down(silu(gate(h)) * up(h)), where gate and up are one matrix.
class CutMlp : public Layer {
 public:
  explicit CutMlp(int parts)
      : parts_(parts),
        up_(cut("up.weight", {2 * kFfn, kHidden}, 0, {{kFfn, 1}, {kFfn, 1}})),
        up_bias_(cut("up.bias", {2 * kFfn}, 0, {{kFfn, 1}, {kFfn, 1}})),
        down_(cut("down.weight", {kHidden, kFfn}, 1, {})),
        scale_(make_param("scale", {kHidden}, init_normal(1, 0.1), false, {})) {}

  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    const at::Tensor x = in[0] * context.param(*scale_);
    const std::vector<at::Tensor> halves =
        at::linear(parts_ == 1 ? x : copy_to(context, "tp", x), context.param(*up_), context.param(*up_bias_)).chunk(2, -1);
    const at::Tensor sum = at::matmul(at::silu(halves[0]) * halves[1], context.param(*down_).t());
    return {in[0] + (parts_ == 1 ? sum : reduce_from(context, "tp", sum))};
  }
  Params params() const override { return {up_, scale_, up_bias_, down_}; }
  std::vector<std::string> axes() const override {
    return parts_ > 1 ? std::vector<std::string>{"tp"} : std::vector<std::string>{};
  }
  std::string kind() const override { return "cut_mlp"; }

 private:
  std::shared_ptr<Param> cut(std::string name, std::vector<int64_t> shape, int dim, std::vector<CutGroup> groups) const {
    auto param = make_param(std::move(name), std::move(shape), init_normal(0, 0.3), true, {});
    if (parts_ > 1) param->placements = {{"tp", Placement::sharded, dim, parts_, std::move(groups)}};
    return param;
  }

  int parts_;
  std::shared_ptr<Param> up_, up_bias_, down_, scale_;
};

}  // namespace

std::shared_ptr<Model> make_cut_model(int parts) {
  const auto block = [] { return nn::make_block(Value::Table{{"hidden", kHidden}, {"heads", 3}}); };
  return std::make_shared<Model>(
      std::vector<NamedLayer>{{"embedding", std::make_shared<CutEmbedding>(parts)},
                              {"blocks.0", block()},
                              {"mlp", std::make_shared<CutMlp>(parts)},
                              {"blocks.1", block()},
                              {"head", nn::make_lm_loss(Value::Table{{"vocab", kVocab + 1}, {"hidden", kHidden}})}},
      5);
}

}  // namespace zt::test
