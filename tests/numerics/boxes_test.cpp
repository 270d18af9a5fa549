// Parameters of which each rank holds boxes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "numerics/support/cut_model.h"
#include "numerics/support/hand_stages.h"
#include "numerics/support/training.h"
#include "support/spawn.h"

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
  for (const int parts : {2, 3, 4, 19, 40})
    EXPECT_TRUE(at::equal(initial_weights(cut(1, parts, Precision::fp32)), whole)) << parts;
}

void expect_as_one_rank(const Config& config, const Outcome& exact) {
  const Outcome run = train(config);
  EXPECT_LE(distance(run.first_gradient, exact.first_gradient), 1e-12);
  EXPECT_LE(distance(run.losses, exact.losses), 1e-12);
  EXPECT_LE(distance(run.norms, exact.norms), 1e-12);
  EXPECT_LE(distance(run.weights, exact.weights), 1e-12);
}

TEST(Boxes, TrainsAsOneRankAtEachZeroStage) {
  const Outcome exact = train(cut(1, 1, Precision::fp64));
  for (const auto& [data_ranks, parts] : std::vector<std::pair<int, int>>{{1, 2}, {2, 2}, {1, 3}, {2, 4}}) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} data ranks, {} parts, stage {}", data_ranks, parts, stage));
      Config config = cut(data_ranks, parts, Precision::fp64);
      config.stage = stage;
      expect_as_one_rank(config, exact);
    }
  }
}

TEST(Boxes, OwnersOfWholeTensorsUpdateThemAsOneRank) {
  Config one = cut(1, 1, Precision::fp64);
  one.optimizer = "muon";
  const Outcome exact = train(one);
  for (const auto& [data_ranks, parts] : std::vector<std::pair<int, int>>{{1, 2}, {2, 2}, {1, 3}, {2, 4}}) {
    for (const int stage : {0, 1, 3}) {
      SCOPED_TRACE(fmt::format("{} data ranks, {} parts, stage {}", data_ranks, parts, stage));
      Config config = cut(data_ranks, parts, Precision::fp64);
      config.optimizer = "muon";
      config.stage = stage;
      expect_as_one_rank(config, exact);
    }
  }
}

TEST(Boxes, TrainAsOneRankInAPipeline) {
  const Outcome exact = train(cut(1, 1, Precision::fp64));
  for (const int data_ranks : {1, 2}) {
    Config config = cut(data_ranks, 2, Precision::fp64);
    split_by_hand(config, {0, 1, static_cast<int>(make_cut_model(1)->positions().size())});
    config.ranks *= config.stage_ranks;
    SCOPED_TRACE(data_ranks);
    expect_as_one_rank(config, exact);
  }
}

TEST(Boxes, StagesHaveTheSameBits) {
  for (const int parts : {2, 3}) {
    const Outcome reference = train(cut(2, parts, Precision::bf16));
    for (const int stage : {1, 2, 3}) {
      Config config = cut(2, parts, Precision::bf16);
      config.stage = stage;
      expect_equal(train(config), reference);
    }
  }
}

TEST(Boxes, TensorsAreSetAndReadWhole) {
  for (const int stage : {0, 2, 3}) {
    Config config = cut(2, 3, Precision::fp32);
    config.stage = stage;
    spawn(config.ranks, [&](const World& world) {
      RankRun run(world, config);
      TrainerTensors tensors = run.trainer().tensors();
      for (const char* name : {"embedding.weight", "mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.scale"}) {
        const std::vector<int64_t>& shape = tensors.at(name).shape;
        const int64_t numel = tensors.parameter(name).numel();
        const at::Tensor values = at::arange(numel, at::kFloat).view(shape);
        tensors.set_parameter(name, values);
        tensors.set_optimizer_state(name, "exp_avg", values + 1);
        EXPECT_TRUE(at::equal(tensors.parameter(name), values)) << name;
        EXPECT_TRUE(at::equal(tensors.master(name), values)) << name;
        EXPECT_TRUE(at::equal(tensors.optimizer_state(name).at("exp_avg"), values + 1)) << name;
      }
      run.step();
      EXPECT_GT(tensors.gradient("mlp.up.weight").norm().item<double>(), 0);
    });
  }
}

}  // namespace
}  // namespace zt::test
