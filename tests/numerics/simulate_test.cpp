// Simulated steps beside those that run: memory of ranks that run some of the positions, measured costs, and what costs must
// tell.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "numerics/support/hand_stages.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

Batch own_part(const World& world, int data_ranks) {
  Batch batch = global_batch(0);
  const int64_t samples = kSamples / data_ranks;
  for (auto& [name, field] : batch) field = field.narrow(0, world.rank % data_ranks * samples, samples);
  return batch;
}

int64_t line_of(Trainer& trainer, const char* kind, int64_t MemoryLine::*field) {
  for (const MemoryLine& line : trainer.memory()) {
    if (line.kind == kind) return line.*field;
  }
  return -1;
}

// Ranks of a pipeline hold what they receive, and nothing of the other positions.
TEST(Simulate, PredictsTheActivationsOfStages) {
  for (const bool splits : {false, true}) {
    spawn(2, [&](const World& world) {
      Config config{.ranks = 2, .micro_batches = 4};
      split_by_hand(config, {0, 3, 5});
      config.stage = 1;
      config.split_backward = splits;
      const auto trainer = make_trainer(world, config);
      Batch batch = own_part(world, 1);
      for (auto& [name, field] : batch)
        field = field.repeat({16, 1});  // so that the tensors of norm and loss are small beside it
      trainer->step(batch);
      const auto measured = static_cast<double>(line_of(*trainer, "activations", &MemoryLine::measured));
      EXPECT_NEAR(static_cast<double>(trainer->predict_activations(batch)), measured, 0.05 * measured) << "rank " << world.rank;
    });
  }
}

TEST(Simulate, UsesMeasuredCosts) {
  spawn(2, [](const World& world) {
    Config config{.ranks = 2, .micro_batches = 3};
    split_by_hand(config, {0, 2, 5});
    config.stage = 1;
    const auto trainer = make_trainer(world, config);
    const Batch batch = own_part(world, 1);
    EXPECT_CONTAINS(message_of<Misuse>([&] { trainer->costs(batch, 0); }), "measures at least 1 step, not 0");
    const Costs costs = trainer->costs(batch, 2);
    EXPECT_EQ(trainer->global_step(), 2) << "measured steps count";
    EXPECT_FALSE(costs.hardware.overlaps) << "on the host a transfer needs the rank's core";
    const auto& positions = trainer->state().model->positions;
    for (const std::string& name : {"F " + positions[0].name, "B " + positions[4].name, "HAND_SEND " + positions[1].name,
                                    "HAND_RECV_GRAD " + positions[1].name, std::string("NORM")})
      EXPECT_TRUE(costs.measured.contains(name)) << name;
    const auto simulation = trainer->simulate(batch, parse_costs(to_value(costs)));
    ASSERT_EQ(simulation->ranks.size(), 2u);
    EXPECT_GT(simulation->seconds, 0);
    for (const SimulatedRank& rank : simulation->ranks) {
      EXPECT_LE(rank.busy, simulation->seconds * (1 + 1e-9));
      EXPECT_GE(rank.span_bubble, -1e-12);
      EXPECT_GT(rank.peak_bytes, rank.constant_bytes);
      EXPECT_FALSE(rank.peak_action.empty());
      EXPECT_LE(rank.actions.back().held_bytes, 8 * config.micro_batches) << "a step leaves nothing but its losses";
    }
    EXPECT_CONTAINS(simulation->text(), "span bubble");
    EXPECT_CONTAINS(simulation->picture(), "</svg>");
    EXPECT_TRUE(nlohmann::json::parse(simulation->trace())["traceEvents"].is_array());
  });
}

TEST(Simulate, ComputesTimesForAMachine) {
  spawn(1, [](const World& world) {
    const auto trainer = make_trainer(world, {.micro_batches = 2});
    const Batch batch = own_part(world, 1);
    Costs costs;
    costs.hardware.flops["fp32"] = 1e9;
    costs.hardware.memory_bandwidth = 1e15;
    const double at_once = trainer->simulate(batch, costs)->seconds;
    costs.hardware.flops["fp32"] = 2e9;
    EXPECT_NEAR(trainer->simulate(batch, costs)->seconds, at_once / 2, 0.02 * at_once) << "it is bound by operations";
    costs.hardware.flops.clear();
    EXPECT_CONTAINS(message_of<Misuse>([&] { trainer->simulate(batch, costs); }), "give hardware.flops.fp32");
    EXPECT_GT(trainer->simulate(batch, find_costs("h200"))->seconds, 0);
    EXPECT_CONTAINS(message_of<Misuse>([] { find_costs("h20"); }), "did you mean 'h200'?");
    EXPECT_CONTAINS(message_of<Misuse>([] { find_costs("missing.json"); }), "cannot be read");
  });
}

TEST(Simulate, RefusesAFileThatIsNotCosts) {
  const std::string path = (std::filesystem::temp_directory_path() / "zt_costs_test.json").string();
  const auto complaint = [&](const char* text) {
    std::ofstream(path) << text;
    return message_of<Misuse>([&] { find_costs(path); });
  };
  EXPECT_CONTAINS(complaint("{nonsense"), "is not JSON");
  EXPECT_CONTAINS(complaint(R"({"hardwear": {}})"), "did you mean 'hardware'?");
  EXPECT_CONTAINS(complaint(R"({"hardware": {"flops": {"fp31": 1}}})"), "fp31");
  EXPECT_CONTAINS(complaint(R"({"measured": {"F": {"compute": -1}}})"), "costs.measured.compute");
  std::filesystem::remove(path);
}

// Micro-batches of equal shapes are alike, so two of them tell what all hold.
TEST(Simulate, RehearsesTwoMicroBatchesForAll) {
  spawn(1, [](const World& world) {
    const Batch batch = own_part(world, 1);
    int64_t of_two = 0;
    for (const int micro_batches : {2, 3, 6}) {
      const auto trainer = make_trainer(world, {.micro_batches = micro_batches});
      Batch part = batch;
      for (auto& [name, field] : part) field = field.narrow(0, 0, 2 * micro_batches);
      const int64_t predicted = trainer->predict_activations(part);
      if (micro_batches == 2) of_two = predicted;
      // Forwards and backwards alternate, so one micro-batch is held at a time, besides the loss of each in 8 bytes.
      EXPECT_EQ(predicted, of_two + 8 * (micro_batches - 2));
    }
  });
}

}  // namespace
}  // namespace zt::test
