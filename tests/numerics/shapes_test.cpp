// Models of odd shapes at every stage on one to four ranks: empty shards, units without a gradient, parameters that a step does
// not use.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "layers/layers.h"
#include "numerics/support/odd_layers.h"
#include "numerics/support/promises.h"
#include "support/spawn.h"

namespace zt::test {
namespace {

using Table = Value::Table;

std::shared_ptr<Layer> linear(int64_t in, int64_t out, bool bias = true) {
  return nn::make_linear(Table{{"in", in}, {"out", out}, {"bias", bias}});
}

// Returns the model: embedding, `middle`, head. If `tied`, the head uses the embedding's weight: both must have the same width.
std::shared_ptr<Model> model_of(int64_t first, std::vector<NamedLayer> middle, int64_t last, bool tied = false) {
  const auto embedding = nn::make_embedding(Table{{"vocab", kVocab}, {"hidden", first}});
  Table head{{"vocab", kVocab}, {"hidden", last}, {"norm", "none"}};
  if (tied) head["tied"] = Object::of(embedding);
  middle.insert(middle.begin(), {"embedding", embedding});
  middle.push_back({"head", nn::make_lm_loss(head)});
  return std::make_shared<Model>(std::move(middle), 5);
}

// Units communicate one by one (no buckets), so that at stages 2 and 3 they take turns in a few buffers.
Config config_of(std::function<std::shared_ptr<Model>()> model) {
  Config config;
  config.bucket_bytes = 0;
  config.steps = 2;
  config.model = std::move(model);
  return config;
}

// Units have 2 to 500 elements, in chunks of 256: most ranks own nothing of most units.
TEST(Shapes, UnevenAndSmallerThanTheNumberOfRanks) {
  const auto model = [] {
    return model_of(
        7,
        {{"wide", linear(7, 31)}, {"narrow", linear(31, 1, false)}, {"two_numbers", linear(1, 1)}, {"out", linear(1, 5, false)}},
        5);
  };
  expect_promises(config_of(model), kOneToFourRanks);
  Config merged = config_of(model);
  merged.bucket_bytes = 1 << 20;
  expect_promises(merged, kOneToFourRanks);
}

TEST(Shapes, OneParameterOfOneElement) {
  const auto model = [] { return std::make_shared<Model>(std::vector<NamedLayer>{{"guess", make_guess()}}, 5); };
  expect_promises(config_of(model), kOneToFourRanks);
  Config by_hand = config_of(model);
  by_hand.by_hand = true;
  expect_promises(by_hand, kOneToFourRanks);
}

TEST(Shapes, FrozenUnitsBetweenTrainedOnes) {
  const auto model = [] { return model_of(9, {{"a", linear(9, 13)}, {"b", linear(13, 13)}, {"c", linear(13, 9)}}, 9); };
  for (const char* frozen : {R"(^b\.)", R"(^(a|c)\.)", R"(^(embedding|b)\.)", R"(^(a|b|c|head)\.)"}) {
    SCOPED_TRACE(frozen);
    Config config = config_of(model);
    config.frozen = frozen;
    expect_promises(config, kTwoAndFourRanks);
  }
}

TEST(Shapes, TiedParameters) {
  const auto bare = [] { return model_of(9, {}, 9, true); };
  const auto between = [] {
    const auto square = linear(9, 9);
    return model_of(9, {{"square", square}, {"other", linear(9, 9)}, {"square", square}, {"square", square}}, 9, true);
  };
  expect_promises(config_of(bare), kOneToFourRanks);
  expect_promises(config_of(between), kOneToFourRanks);
}

TEST(Shapes, ALayerWithAnUnreadOutput) {
  const auto model = [] { return model_of(9, {{"first", linear(9, 9)}, {"unread", make_unread(9)}, {"last", linear(9, 9)}}, 9); };
  expect_promises(config_of(model), kOneToFourRanks);
}

// The batch decides which samples use the parameter: in all micro-batches of a step, in one or in none.
TEST(Shapes, AParameterThatALayerDoesNotTouch) {
  Config config = config_of([] {
    return model_of(9, {{"first", linear(9, 9)}, {"partly", make_partly_used()}, {"last", linear(9, 9)}}, 9);
  });
  expect_promises(config, kOneToFourRanks);
  for (const std::vector<int64_t>& wanted : {std::vector<int64_t>{0}, {11}, {5, 6}}) {
    config.batch = [wanted](int step) {
      Batch batch = global_batch(step);
      batch["wanted"] = at::zeros({kSamples});
      // No sample of the second step uses the parameter: its gradient of the first step must be gone.
      for (const int64_t sample : wanted) batch.at("wanted")[sample] = step == 1 ? 0 : 1;
      return batch;
    };
    expect_promises(config, kTwoAndFourRanks);
  }
}

// Expects that each trainer gives the same bits as alone.
TEST(Shapes, TwoTrainersTakeTurns) {
  Config small = config_of([] { return model_of(9, {{"square", linear(9, 9)}}, 9, true); });
  for (const std::optional<bool> node_shared : {std::optional(false), std::optional<bool>()}) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (int stage = 0; stage <= 3; ++stage) {
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, node_shared {}", ranks, stage, node_shared ? "= false" : "by default"));
        Config big{.ranks = ranks, .micro_batches = ranks == 4 ? 3 : 2, .stage = stage, .steps = 2, .node_shared = node_shared};
        small.ranks = ranks;
        small.stage = stage;
        small.node_shared = node_shared;
        const Outcome big_alone = train(big), small_alone = train(small);
        spawn(ranks, [&](const World& world) {
          RankRun one(world, big), other(world, small);
          for (int step = 0; step < 2; ++step) {
            one.step();
            other.step();
          }
          const Outcome one_end = one.finish(), other_end = other.finish();
          expect_equal(one_end, big_alone);
          expect_equal(other_end, small_alone);
        });
      }
    }
  }
}

}  // namespace
}  // namespace zt::test
