// Mixtures of experts on several ranks compared with one rank, in fp64: losses, norms and the gradient as one vector must be
// within 1e-12. ZeRO stages, recompute and overlap change no bit.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "moe/support/mixtures.h"
#include "numerics/support/training.h"
#include "split/split.h"
#include "support/spawn.h"
#include "zt/program/micro_batch_pairs.h"

namespace zt::test {
namespace {

Config config_of(const Mixture& mixture, int data_ranks, int stage) {
  Config config{.ranks = data_ranks * mixture.expert_ranks, .stage = stage, .precision = Precision::fp64};
  config.expert_ranks = mixture.expert_ranks;
  config.gradient = true;
  config.steps = 3;
  config.model = [mixture] { return make_mixture(mixture); };
  return config;
}

Outcome on_one_rank(Mixture mixture, int micro_batches = 1) {
  mixture.expert_ranks = 1;
  Config config = config_of(mixture, 1, 0);
  config.micro_batches = micro_batches;
  return train(config);
}

void expect_close(const Outcome& run, const Outcome& one) {
  EXPECT_LT(distance(run.losses, one.losses), 1e-12);
  EXPECT_LT(distance(run.norms, one.norms), 1e-12);
  EXPECT_LT(distance(run.first_gradient, one.first_gradient), 1e-12);
}

struct Layout {
  int expert_ranks, data_ranks;
};
const Layout kLayouts[] = {{1, 2}, {2, 1}, {2, 2}, {4, 1}};

TEST(MoeExact, LayoutsAndDispatchersAreWithinTwelveDigitsOfOneRank) {
  for (const int64_t top_k : {1, 2, 4}) {
    Mixture mixture{.top_k = top_k};
    const Outcome one = on_one_rank(mixture);
    for (const Layout& layout : kLayouts) {
      for (const std::string& kind : kDispatchers) {
        mixture.expert_ranks = layout.expert_ranks;
        mixture.dispatcher = kind;
        SCOPED_TRACE(fmt::format("top {}, ep {}, dp {}, {}", top_k, layout.expert_ranks, layout.data_ranks, kind));
        expect_close(train(config_of(mixture, layout.data_ranks, 0)), one);
      }
    }
  }
}

TEST(MoeExact, StagesRecomputeAndOverlapChangeNoBit) {
  for (const Layout& layout : kLayouts) {
    Mixture mixture{.expert_ranks = layout.expert_ranks};
    Config config = config_of(mixture, layout.data_ranks, 0);
    config.reduce_every = "step";
    config.micro_batches = 3;
    const Outcome first = train(config);
    expect_close(first, on_one_rank(mixture, 3));
    for (int stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE(fmt::format("ep {}, dp {}, stage {}", layout.expert_ranks, layout.data_ranks, stage));
      config.stage = stage;
      config.recompute_every = stage % 2;
      config.split_backward = stage >= 2;
      mixture.overlaps = stage >= 1;
      config.model = [mixture] { return make_mixture(mixture); };
      expect_equal(train(config), first);
    }
  }
}

// An odd number of micro-batches leaves one alone.
TEST(MoeExact, PairsOfMicroBatchesChangeNoBit) {
  for (const int micro_batches : {3, 6}) {
    Mixture mixture{.expert_ranks = 2, .router = {{"score", "sigmoid"}, {"bias", true}}};
    Config config = config_of(mixture, 1, 0);
    config.micro_batches = micro_batches;
    config.eval_micro_batches = 2;
    config.reduce_every = "step";
    const Outcome one_by_one = train(config);
    mixture.overlaps = true;
    config.model = [mixture] { return make_mixture(mixture); };
    config.last_pass = make_micro_batch_pairs();
    for (int stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE(fmt::format("{} micro-batches, stage {}", micro_batches, stage));
      config.stage = stage;
      config.recompute_every = stage % 2;
      config.split_backward = stage >= 2;
      expect_equal(train(config), one_by_one);
    }
  }
}

TEST(MoeExact, SixExpertsOnThreeRanks) {
  Mixture mixture{.experts = 6};
  const Outcome one = on_one_rank(mixture);
  mixture.expert_ranks = 3;
  expect_close(train(config_of(mixture, 1, 3)), one);
}

TEST(MoeExact, RoutersOfAllKinds) {
  const Value::Table routers[] = {
      {{"score", "sigmoid"}, {"normalise", "selected"}, {"scale", 2.5}, {"bias", true}, {"groups", 2}, {"top_groups", 1}},
      {{"softmax_after", true}, {"noise", "noisy_top_k"}},
      {{"noise", "gumbel_second"}},
      {{"noise", "jitter"}, {"losses", Value::Table{{"balance", 0.1}, {"z", 0.01}}}},
      {{"choice", "expert"}, {"capacity", Value::Table{{"train", 1}, {"min", 1}}}},
      {{"capacity", Value::Table{{"train", 0.5}, {"min", 1}}}, {"normalise", "kept"}},
      {{"capacity", Value::Table{{"train", 0.5}, {"min", 1}, {"keep", "place"}}}},
      {{"capacity", Value::Table{{"train", 0.75}, {"min", 1}, {"pad", true}}}},
      {{"capacity", Value::Table{{"train", 0.5}, {"min", 1}, {"keep", "random"}}}},
      {{"routes", "balanced"}},
  };
  for (const Value::Table& router : routers) {
    Mixture mixture{.router = router};
    SCOPED_TRACE(Value(router).to_json().dump());
    const Outcome one = on_one_rank(mixture, 2);
    mixture.expert_ranks = 2;
    Config config = config_of(mixture, 2, 2);
    config.micro_batches = 3;
    expect_close(train(config), one);
  }
}

// Stages are cut within mixtures, too, so all values between their layers are sent.
TEST(MoeExact, PipelinesChangeNoBit) {
  for (const int expert_ranks : {1, 2}) {
    const Mixture mixture{.expert_ranks = expert_ranks, .router = {{"score", "sigmoid"}, {"bias", true}}};
    for (const int stage : {0, 3}) {
      Config config = config_of(mixture, 1, stage);
      config.micro_batches = 3;
      config.reduce_every = "step";
      const Outcome without = train(config);
      expect_close(without, on_one_rank(mixture, 3));
      for (const std::string schedule : {"one_f_one_b", "zb_v", "dualpipe_v"}) {
        SCOPED_TRACE(fmt::format("ep {}, stage {}, {}", expert_ranks, stage, schedule));
        config.ranks = 2 * expert_ranks;
        config.stage_ranks = 2;
        config.split = [schedule](std::shared_ptr<Axis> axis) {
          pipe::SplitOptions options{.axis = std::move(axis), .name = schedule};
          options.partition.rule = "uniform";
          return pipe::make_split(std::move(options));
        };
        expect_equal(train(config), without);
      }
      config.split = {};
    }
  }
}

// With all tokens at the experts 0 and 1, the experts of rank 1 have none.
TEST(MoeExact, ExpertsAndRanksWithoutTokens) {
  Mixture mixture{.router = {{"routes", "routes"}}};
  const auto with_routes = [](int step) {
    Batch batch = global_batch(step);
    batch["routes"] = at::arange(2, at::kLong).expand({kSamples, kSeq, 2}).contiguous();
    return batch;
  };
  Config config = config_of(mixture, 1, 0);
  config.batch = with_routes;
  const Outcome one = train(config);
  for (const std::string& kind : kDispatchers) {
    mixture.expert_ranks = 2;
    mixture.dispatcher = kind;
    config = config_of(mixture, 2, 3);
    config.batch = with_routes;
    expect_close(train(config), one);
  }
}

// One token per rank, of which one rank's experts may get none.
TEST(MoeExact, OneTokenPerRank) {
  for (const std::string& kind : kDispatchers) {
    Mixture mixture{.top_k = 1, .dispatcher = kind};
    Config config = config_of(mixture, 1, 0);
    config.samples = 2;
    config.batch = [](int step) { return shortened(global_batch(step, 0, 2), 1); };
    const Outcome one = train(config);
    mixture.expert_ranks = 2;
    Config spread = config_of(mixture, 1, 3);
    spread.samples = config.samples;
    spread.batch = config.batch;
    expect_close(train(spread), one);
  }
}

// Rank 1 has samples of 4 tokens, rank 0 of 10. One rank trains on them as two micro-batches.
TEST(MoeExact, RanksWithOtherNumbersOfTokens) {
  const std::vector<Batch> parts = cut_at(global_batch(0), {6, 6});
  const std::vector<Batch> ragged{parts[0], shortened(parts[1], 4)};
  const auto train_ragged = [&](const Mixture& mixture, int ranks) {
    Config config = config_of(mixture, 1, ranks > 1 ? 2 : 0);
    config.micro_batches = 2 / ranks;
    std::vector<std::pair<double, double>> results(2);  // loss and norm, by step
    spawn(ranks, [&](const World& world) {
      const auto trainer = make_trainer(world, config);
      for (auto& [loss, norm] : results) {
        const StepResult result =
            trainer->step(ranks > 1 ? StepBatch(ragged[static_cast<size_t>(world.rank)]) : StepBatch(ragged));
        if (world.rank == 0) std::tie(loss, norm) = std::pair(result.loss, result.grad_norm.value());
      }
    });
    return results;
  };
  Mixture mixture{.top_k = 2};
  const auto one = train_ragged(mixture, 1);
  mixture.expert_ranks = 2;
  for (const std::string& kind : kDispatchers) {
    mixture.dispatcher = kind;
    const auto both = train_ragged(mixture, 2);
    for (size_t step = 0; step < one.size(); ++step) {
      EXPECT_NEAR(both[step].first / one[step].first, 1, 1e-12);
      EXPECT_NEAR(both[step].second / one[step].second, 1, 1e-12);
    }
  }
}

// The first loss, a mean over 100 tokens, is within one rounding to bf16. The routes do not depend on scores, of which nearly
// equal ones may choose other experts in 16 bits.
TEST(MoeExact, SixteenBitsStayWithinTheirRounding) {
  for (const Precision& precision : {Precision::bf16, Precision::fp16}) {
    Mixture mixture{.router = {{"routes", "balanced"}}};
    Config config = config_of(mixture, 1, 0);
    config.precision = Precision::fp32;
    const Outcome exact = train(config);
    mixture.expert_ranks = 2;
    config = config_of(mixture, 1, 2);
    config.precision = precision;
    EXPECT_NEAR(train(config).losses[0] / exact.losses[0], 1, 0x1p-8);
  }
}

TEST(MoeExact, StatisticsCountTokensOnceAlsoWithRecompute) {
  const Mixture mixture{.expert_ranks = 2};
  Config config = config_of(mixture, 1, 1);
  config.micro_batches = 3;
  config.recompute_every = 1;
  spawn(config.ranks, [&](const World& world) {
    RankRun run(world, config);
    const Stats stats = run.step().stats;
    EXPECT_EQ(stats.at("first.router.load").sum().item<double>(), kSamples * kSeq * mixture.top_k);
    EXPECT_EQ(stats.at("second.router.tokens").item<double>(), kSamples * kSeq);
    EXPECT_EQ(stats.size(), 2 * (9 + 2 * 2U));  // of each mixture: those of the router, and two of dispatch and combine
    run.finish();
  });
}

}  // namespace
}  // namespace zt::test
