// Values that skip stages, values without a gradient, and micro-batches of different shapes: the same bits with and without a
// pipeline.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "layers/layers.h"
#include "numerics/support/odd_layers.h"
#include "pipe/support/pipelines.h"
#include "schedule/recipes.h"
#include "support/spawn.h"

namespace zt::test {
namespace {

// Eight positions. The value "aside" of position 1 is read at the positions 3 and 5, and that of position 4 at position 6.
std::shared_ptr<Model> model_with_skips() {
  const int64_t hidden = 6;
  const auto linear = [&] { return nn::make_linear(Value::Table{{"in", hidden}, {"out", hidden}}); };
  return std::make_shared<Model>(
      std::vector<NamedLayer>{{"embedding", nn::make_embedding(Value::Table{{"vocab", kVocab}, {"hidden", hidden}})},
                              {"fork", make_fork()},
                              {"a", linear()},
                              {"join1", make_join()},
                              {"b", linear()},
                              {"join2", make_join()},
                              {"c", linear()},
                              {"head", nn::make_lm_loss(Value::Table{{"vocab", kVocab}, {"hidden", hidden}})}},
      5);
}

// Returns h tanh(h), and outputs without a gradient: "mask", 1 where h > 0, and "rows", the integers of the same places.
class Marks : public Layer {
 public:
  std::vector<at::Tensor> forward(at::TensorList in, Context&) override {
    const at::Tensor mask = in[0].detach() > 0;
    return {in[0] * in[0].tanh(), mask.to(in[0].scalar_type()), mask.to(at::kLong)};
  }
  Io io() const override {
    return {.inputs = {"h"},
            .outputs = {{.name = "h"}, {.name = "mask", .differentiable = false}, {.name = "rows", .differentiable = false}}};
  }
  std::string kind() const override { return "marks"; }
};

// Returns h times an output without a gradient.
class Masked : public Layer {
 public:
  explicit Masked(std::string mask) : mask_(std::move(mask)) {}
  std::vector<at::Tensor> forward(at::TensorList in, Context&) override { return {in[0] * (1 + in[1])}; }
  Io io() const override { return {.inputs = {"h", mask_}, .outputs = {{.name = "h"}}}; }
  std::string kind() const override { return "masked"; }

 private:
  std::string mask_;
};

// Ten positions. Those at 5 and 8 read only outputs of position 1 that have no gradient. "aside" of position 3 is read at 7.
std::shared_ptr<Model> model_with_masks() {
  const int64_t hidden = 6;
  const auto linear = [&] { return nn::make_linear(Value::Table{{"in", hidden}, {"out", hidden}}); };
  return std::make_shared<Model>(
      std::vector<NamedLayer>{{"embedding", nn::make_embedding(Value::Table{{"vocab", kVocab}, {"hidden", hidden}})},
                              {"marks", std::make_shared<Marks>()},
                              {"a", linear()},
                              {"fork", make_fork()},
                              {"b", linear()},
                              {"masked", std::make_shared<Masked>("mask")},
                              {"c", linear()},
                              {"join", make_join()},
                              {"by_rows", std::make_shared<Masked>("rows")},
                              {"head", nn::make_lm_loss(Value::Table{{"vocab", kVocab}, {"hidden", hidden}})}},
      5);
}

// Four micro-batches of 1, 5, 2 and 4 samples, two of them with shorter samples.
StepBatch ragged(const Batch& batch) {
  auto parts = cut_at(batch, {1, 5, 2, 4});
  parts[1] = shortened(parts[1], 6);
  parts[3] = shortened(parts[3], 3);
  return parts;
}

class Flows : public testing::TestWithParam<std::string> {};

TEST_P(Flows, SkipsAndRaggedMicroBatches) {
  for (const auto& [ranks, stage] : {std::pair{2, 3}, {3, 0}, {4, 3}}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, stage " << stage);
    Config whole{.ranks = 1, .micro_batches = 4, .stage = stage, .reduce_every = "step", .dropout = 0, .steps = 2};
    whole.model = model_with_skips;
    whole.cut = ragged;
    expect_exact({.ranks = ranks, .name = GetParam()}, whole);
  }
}

// A stage that reads a mask alone has no gradient to send back.
TEST_P(Flows, OutputsWithoutAGradient) {
  for (const auto& [ranks, partition] :
       {std::pair<int, Value>{2, "uniform"}, {3, "uniform"}, {4, "uniform"}, {2, "parameters"}}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    Config whole{.ranks = 1, .micro_batches = 4, .stage = 3, .reduce_every = "step", .dropout = 0, .steps = 2};
    whole.model = model_with_masks;
    whole.cut = ragged;
    expect_exact({.ranks = ranks, .name = GetParam(), .partition = partition}, whole);
  }
}

// A plan counts the gradients that there are: of the three outputs, one has a gradient.
TEST(FlowsPlan, CountsTheGradientsThatAreSent) {
  Config whole{.ranks = 1, .micro_batches = 4, .stage = 0, .dropout = 0};
  whole.model = model_with_masks;
  spawn(2, [&](const World& world) {
    const auto trainer = make_trainer(world, through({.ranks = 2, .partition = Value::List{2, 8}}, whole));
    const auto plan = trainer->plan(global_batch(0)).to_json();
    constexpr int64_t kElements = kSamples * kSeq * 6;
    EXPECT_EQ(plan[0]["sent"].value("SEND", 0), kElements * (4 + 4 + 8));
    EXPECT_EQ(plan[1]["sent"].value("SEND_GRAD", 0), kElements * 4);
  });
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const pipe::Recipe& recipe : pipe::recipes()) names.push_back(recipe.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Schedules, Flows, testing::ValuesIn(schedule_names()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace zt::test
