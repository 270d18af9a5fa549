// Parameters of which each rank holds a box of a logical tensor.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "numerics/support/cut_embedding.h"
#include "numerics/support/hand_stages.h"
#include "numerics/support/training.h"

namespace zt::test {
namespace {

Config cut(int data_ranks, int parts, Precision precision) {
  Config config;
  config.ranks = data_ranks * parts;
  config.tensor_ranks = parts;
  config.precision = precision;
  config.stage = 0;
  config.gradient = true;
  config.model = [parts] { return make_cut_model(parts); };
  return config;
}

at::Tensor initial_weights(const Config& config) {
  Config without_steps = config;
  without_steps.steps = 0;
  return train(without_steps).weights;
}

TEST(Boxes, InitialWeightsAreThoseOfOneRank) {
  const at::Tensor whole = initial_weights(cut(1, 1, Precision::fp32));
  for (const int parts : {2, 19}) EXPECT_TRUE(at::equal(initial_weights(cut(1, parts, Precision::fp32)), whole)) << parts;
}

TEST(Boxes, TrainsAsOneRankAtEachZeroStage) {
  const Outcome exact = train(cut(1, 1, Precision::fp64));
  for (const int data_ranks : {1, 2}) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} data ranks, stage {}", data_ranks, stage));
      Config config = cut(data_ranks, 2, Precision::fp64);
      config.stage = stage;
      const Outcome run = train(config);
      EXPECT_LE(distance(run.first_gradient, exact.first_gradient), 1e-12);
      EXPECT_LE(distance(run.losses, exact.losses), 1e-12);
      EXPECT_LE(distance(run.norms, exact.norms), 1e-12);
    }
  }
}

TEST(Boxes, TrainAsOneRankInAPipeline) {
  const Outcome exact = train(cut(1, 1, Precision::fp64));
  for (const int data_ranks : {1, 2}) {
    Config config = cut(data_ranks, 2, Precision::fp64);
    split_by_hand(config, {0, 1, static_cast<int>(make_cut_model(1)->positions().size())});
    config.ranks *= config.stage_ranks;
    const Outcome run = train(config);
    EXPECT_LE(distance(run.first_gradient, exact.first_gradient), 1e-12) << data_ranks;
    EXPECT_LE(distance(run.losses, exact.losses), 1e-12) << data_ranks;
    EXPECT_LE(distance(run.norms, exact.norms), 1e-12) << data_ranks;
  }
}

TEST(Boxes, StagesHaveTheSameBits) {
  const Outcome reference = train(cut(2, 2, Precision::bf16));
  for (const int stage : {1, 2, 3}) {
    Config config = cut(2, 2, Precision::bf16);
    config.stage = stage;
    expect_equal(train(config), reference);
  }
}

}  // namespace
}  // namespace zt::test
