// Every combination of stage, precision, accumulation, clipping, recompute, tied and frozen parameters, each with one number of
// ranks; each of these choices occurs with each number that divides the samples. All stages must give equal bits, and all runs
// must be near one rank in fp64. The random cases (random/main.lua) have other products.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "numerics/support/training.h"

namespace zt::test {
namespace {

struct Numbers {
  const char* name;
  Precision precision;
};

class Product : public testing::TestWithParam<Numbers> {};

// reduce_every is "step" at all stages: stages promise equal bits only for the same value. Equality.Stages tests the other value.
TEST_P(Product, StagesAreEqualAndNearOneRankInFp64) {
  const int all = 1 << 5;
  for (int choice = 0; choice < all; ++choice) {
    const auto is = [choice](int bit) { return (choice >> bit & 1) != 0; };
    Config config{.micro_batches = is(0) ? 3 : 1,
                  .stage = 0,
                  .reduce_every = "step",
                  .recompute_every = is(1) ? 1 : 0,
                  .tied = is(2),
                  .clip = is(3) ? 0.5 : 0,
                  .steps = 2};
    if (is(4)) config.frozen = R"(^blocks\.1\.|positions|^blocks\.2\.mlp\.up\.weight)";
    config.precision = Precision::fp64;
    const Outcome exact = train(config);
    config.precision = GetParam().precision;
    const Outcome one_rank = train(config);
    config.ranks = 1 + ((choice ^ choice >> 2 ^ choice >> 4) & 3);
    while (kSamples / config.ranks % config.micro_batches != 0) --config.ranks;
    Outcome first;
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("choice {:05b}, {} ranks, stage {}", choice, config.ranks, stage));
      config.stage = stage;
      const Outcome run = train(config);
      if (stage == 0) first = run;
      expect_equal(first, run);
    }
    // The promise: at most twice as far from fp64 as one rank is.
    EXPECT_LE(distance(first.first_gradient, exact.first_gradient), 2 * distance(one_rank.first_gradient, exact.first_gradient))
        << choice << ", " << config.ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, Product, testing::Values(Numbers{"fp32", Precision::fp32}, Numbers{"bf16", Precision::bf16}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace zt::test
