// Values that skip stages, and micro-batches of different shapes: the same bits with and without a pipeline.
#include <gtest/gtest.h>

#include "layers/layers.h"
#include "numerics/support/odd_layers.h"
#include "pipe/support/pipelines.h"
#include "schedule/recipes.h"

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

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const pipe::Recipe& recipe : pipe::recipes()) names.push_back(recipe.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Schedules, Flows, testing::ValuesIn(schedule_names()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace zt::test
