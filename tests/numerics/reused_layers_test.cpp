// A layer that is used at several positions trains the same, bit for bit, if several ranks of a pipeline run its uses.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "layers/layers.h"
#include "numerics/support/hand_stages.h"
#include "zt/model/param.h"

namespace zt::test {
namespace {

constexpr int64_t kHidden = 8;

// h + tanh(h * p) for each parameter p in turn, of which every other one has a single element.
class Scales : public Layer {
 public:
  explicit Scales(int count) {
    for (int k = 0; k < count; ++k) {
      auto& param = params_.emplace_back(std::make_shared<Param>());
      param->name = fmt::format("p{}", k);
      param->shape = {k % 2 == 0 ? kHidden : 1};
      param->init = init_normal(0, 0.5);
    }
  }
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    at::Tensor h = in[0];
    for (const auto& param : params_) h = h + (h * context.param(*param)).tanh();
    return {h};
  }
  Params params() const override { return params_; }
  Io io() const override { return {}; }
  std::string kind() const override { return "scales"; }

 private:
  Params params_;
};

// Positions: embedding, the layer, a norm, the layer, a linear layer, the layer, the loss.
std::shared_ptr<Model> model_that_reuses(const std::shared_ptr<Layer>& reused) {
  const Value::Table io{{"vocab", kVocab}, {"hidden", kHidden}};
  return std::make_shared<Model>(
      std::vector<NamedLayer>{{"embedding", nn::make_embedding(io)},
                              {"reused", reused},
                              {"norm", nn::make_layernorm(Value::Table{{"hidden", kHidden}})},
                              {"again", reused},
                              {"linear", nn::make_linear(Value::Table{{"in", kHidden}, {"out", kHidden}})},
                              {"once_more", reused},
                              {"loss", nn::make_lm_loss(io)}},
      3);
}

std::vector<std::function<std::shared_ptr<Layer>()>> reusable_layers() {
  std::vector<std::function<std::shared_ptr<Layer>()>> layers;
  for (int params = 1; params <= 4; ++params) layers.emplace_back([params] { return std::make_shared<Scales>(params); });
  layers.emplace_back([] { return nn::make_linear(Value::Table{{"in", kHidden}, {"out", kHidden}}); });
  layers.emplace_back([] { return nn::make_mlp(Value::Table{{"hidden", kHidden}, {"ffn", 16}}); });
  return layers;
}

void expect_equal_without_stages(Config config) {
  Config whole = config;
  whole.ranks /= std::exchange(whole.stage_ranks, 1);
  whole.split = nullptr;
  const Outcome apart = train(config), together = train(whole);
  expect_equal(apart, together);
  EXPECT_TRUE(at::equal(apart.first_gradient, together.first_gradient));
}

void expect_equal_for_all(const std::vector<int>& begins, const std::string& frozen, Precision precision) {
  const auto layers = reusable_layers();
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const int data_ranks : {1, 2}) {
      for (const int stage : {0, 1, 2, 3}) {
        SCOPED_TRACE(fmt::format("layer {}, {} data ranks, stage {}", i, data_ranks, stage));
        Config config{.micro_batches = 2, .stage = stage, .precision = precision, .steps = 2, .frozen = frozen, .gradient = true};
        split_by_hand(config, begins);
        config.ranks = data_ranks * config.stage_ranks;
        config.model = [&] { return model_that_reuses(layers[i]()); };
        expect_equal_without_stages(config);
      }
    }
  }
}

TEST(ReusedLayers, OnTwoStages) {
  expect_equal_for_all({0, 3, 7}, "", Precision::fp32);
}

TEST(ReusedLayers, OnTwoStagesWithFrozenParameters) {
  expect_equal_for_all({0, 2, 7}, "reused.*(bias|p1|p2)$|embedding", Precision::fp32);
}

TEST(ReusedLayers, OnThreeStagesInBf16) {
  expect_equal_for_all({0, 2, 4, 7}, "", Precision::bf16);
}

}  // namespace
}  // namespace zt::test
