// How a model is cut into stages.
#include "split/partition.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "sdk/program/program_models.h"
#include "support/message.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

using namespace pipe;

// A model of positions with these numbers of parameters.
ModelInfo model_of(const std::vector<int64_t>& params) {
  ModelMaker maker;
  for (size_t p = 0; p < params.size(); ++p) {
    const std::string name = (p == 0 ? "embedding" : "block") + std::to_string(p);
    const std::vector<int> inputs = p == 0 ? std::vector<int>{} : std::vector<int>{static_cast<int>(p) - 1};
    maker.position(name, inputs, params[p] > 0 ? std::vector{maker.unit(name, params[p])} : std::vector<int>{});
  }
  return maker.info;
}

TEST(Partition, Uniform) {
  const ModelInfo model = model_of({1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(make_partition({"uniform"}, model, 3), (Partition{0, 3, 5, 7}));
  EXPECT_EQ(make_partition({"uniform"}, model, 9).back(), 7);
}

TEST(Partition, Parameters) {
  EXPECT_EQ(make_partition({"parameters"}, model_of({600, 100, 100, 100, 100, 500}), 2), (Partition{0, 3, 6}));
  EXPECT_EQ(make_partition({"parameters"}, model_of({5, 5, 5, 5, 5}), 4), (Partition{0, 2, 3, 4, 5}));
  EXPECT_EQ(make_partition({"parameters"}, model_of({0, 0, 0}), 2), (Partition{0, 2, 3}));
  EXPECT_EQ(make_partition({"parameters"}, model_of({7}), 3), (Partition{0, 1, 1, 1}));
}

TEST(Partition, BalancesSums) {
  EXPECT_EQ(balance({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3), (Partition{0, 5, 7, 9}));
  EXPECT_EQ(balance({}, 2), (Partition{0, 0, 0}));
}

std::vector<int> sizes_of(const Partition& begins) {
  std::vector<int> sizes;
  for (size_t s = 0; s + 1 < begins.size(); ++s) sizes.push_back(begins[s + 1] - begins[s]);
  return sizes;
}

// The sizes that DeepSpeed's partition_balanced gives.
TEST(Partition, SpreadsEqualBlocksEvenly) {
  EXPECT_EQ(sizes_of(balance(std::vector<double>(5, 1), 4)), (std::vector{2, 1, 1, 1}));
  EXPECT_EQ(sizes_of(balance(std::vector<double>(42, 1), 16)), (std::vector{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2}));
  // Numbers of parameters, whose squares are rounded.
  EXPECT_EQ(sizes_of(balance(std::vector<double>(14, 7087872), 4)), (std::vector{4, 4, 3, 3}));
  EXPECT_EQ(make_partition({"type:block"}, model_of({9, 1, 1, 1, 1, 1}), 4), (Partition{0, 3, 4, 5, 6}));
  // One large position decides the largest sum, and the others are even all the same.
  EXPECT_EQ(sizes_of(balance({100, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 4)), (std::vector{1, 3, 3, 3}));
  EXPECT_EQ(sizes_of(balance({1, 1, 1, 1, 1, 1, 100, 1, 100, 1}, 6)), (std::vector{3, 3, 1, 1, 1, 1}));
}

// Against all cuts: the largest sum is the least one, and of those cuts the sum of squares is.
TEST(Partition, IsTheBestOfAllCuts) {
  std::mt19937 random(7);
  const auto score = [](const std::vector<double>& weights, const Partition& begins) {
    double most = 0, squares = 0;
    for (size_t s = 0; s + 1 < begins.size(); ++s) {
      const double sum = std::accumulate(weights.begin() + begins[s], weights.begin() + begins[s + 1], 0.0);
      most = std::max(most, sum);
      squares += sum * sum;
    }
    return std::pair(most, squares);
  };
  for (int round = 0; round < 300; ++round) {
    const int count = 4 + static_cast<int>(random() % 6);
    std::vector<double> weights;
    for (int i = 0; i < count; ++i) weights.push_back(static_cast<double>(random() % 5));
    auto best = std::pair(1e9, 1e9);
    for (int a = 1; a < count - 1; ++a) {
      for (int b = a + 1; b < count; ++b) best = std::min(best, score(weights, {0, a, b, count}));
    }
    EXPECT_EQ(score(weights, balance(weights, 3)), best) << testing::PrintToString(weights);
  }
}

TEST(Partition, ByName) {
  EXPECT_EQ(make_partition({"type:block"}, model_of({1, 1, 1, 1, 1}), 2), (Partition{0, 3, 5}));
  EXPECT_CONTAINS(message_of<Misuse>([] {
                    make_partition({"type:transformer"}, model_of({1, 1}), 2);
                  }),
                  "no layer's name or kind matches 'transformer': the kinds are test");
}

// The positions 1 to 3 are one block, as are 4 and 5.
TEST(Partition, KeepsBlocksTogetherUnlessItIsAList) {
  ModelInfo model = model_of({1, 1, 5, 1, 1, 1, 2});
  for (const int position : {2, 3, 5}) model.positions[position].continues = true;
  EXPECT_EQ(make_partition({"uniform"}, model, 2), (Partition{0, 4, 7}));
  EXPECT_EQ(make_partition({"parameters"}, model, 3), (Partition{0, 1, 4, 7}));
  EXPECT_EQ(make_partition({"type:block2"}, model, 2), (Partition{0, 6, 7}));
  EXPECT_EQ(make_partition({Value::List{3, 4}}, model, 2), (Partition{0, 3, 7}));
}

TEST(Partition, Listed) {
  const ModelInfo model = model_of({1, 1, 1, 1, 1});
  EXPECT_EQ(make_partition({Value::List{4, 0, 1}}, model, 3), (Partition{0, 4, 4, 5}));
  const auto message = [&](Value rule) { return message_of<Misuse>([&] { make_partition({std::move(rule)}, model, 3); }); };
  EXPECT_CONTAINS(message(Value::List{4, 1}), "lists 2 stages, and the schedule has 3");
  EXPECT_CONTAINS(message(Value::List{4, 1, 1}), "lists 6 positions in all, and the model has 5: {2, 2, 1} is an even cut");
  EXPECT_CONTAINS(message(Value::List{6, -1, 0}), "a stage of -1 positions");
  EXPECT_CONTAINS(message("params"), "unknown value 'params'");
}

TEST(Partition, ByMeasuredTimes) {
  const ModelInfo model = model_of({1, 1, 1, 1});
  PartitionRule rule{"cost"};
  EXPECT_CONTAINS(message_of<Misuse>([&] { make_partition(rule, model, 2); }), "give costs = trainer:costs(batch)");
  const std::vector<double> seconds{1, 1, 1, 4};
  for (int p = 0; p < 4; ++p) {
    rule.costs.measured[measured_name({.kind = Kinds::get().forward, .target = p, .micro_batch = 0}, model)] = {seconds[p], 0, 0};
    if (p == 3) continue;
    rule.costs.measured[measured_name({.kind = Kinds::get().backward, .target = p, .micro_batch = 0}, model)] = {seconds[p], 0,
                                                                                                                 0};
  }
  EXPECT_CONTAINS(message_of<Misuse>([&] { make_partition(rule, model, 2); }), "do not tell how long layer 'block3' takes");
  rule.costs.measured[measured_name({.kind = Kinds::get().input_grad, .target = 3, .micro_batch = 0}, model)] = {4, 0, 0};
  EXPECT_EQ(make_partition(rule, model, 2), (Partition{0, 3, 4}));
}

}  // namespace
}  // namespace zt::test
