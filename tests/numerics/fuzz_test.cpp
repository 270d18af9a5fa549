// Random models with random options. ZT_FUZZ_SEED=NUMBER --gtest_filter=*Fuzz*/0 runs only the case of that seed.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "numerics/support/fuzz_case.h"
#include "numerics/support/promises.h"
#include "support/exhaustive.h"

namespace zt::test {
namespace {

constexpr uint32_t kGroups = 8;
constexpr uint32_t kCasesInGroup = 30;

std::vector<uint32_t> seeds_of(uint32_t group) {
  if (const char* named = std::getenv("ZT_FUZZ_SEED")) return {static_cast<uint32_t>(std::strtoul(named, nullptr, 10))};
  std::vector<uint32_t> seeds;
  const auto cases = static_cast<uint32_t>(number_of_cases(kCasesInGroup));
  for (uint32_t i = 0; i < cases; ++i) seeds.push_back(group * cases + i);
  return seeds;
}

// Expects that `run` has the bits of a run at stage 0 with default options, except those that decide the order of sums.
void expect_stage_0(const Config& config, const Outcome& run) {
  Config plain = config;
  plain.stage = 0;
  plain.replicas = 1;
  plain.shard.clear();
  plain.node_shared = std::nullopt;
  plain.bucket_bytes = plain.prefetch = plain.persist_below = plain.max_reuse_distance = -1;
  plain.recompute_every = 0;
  const Outcome first = train(plain);
  expect_equal(first, run);
  EXPECT_TRUE(at::equal(first.first_gradient, run.first_gradient));
}

// Sums over cases of the squared relative distance of the first gradient from the exact one: for the runs, and for one rank.
struct Distances {
  double runs = 0, one_rank = 0;
};

class Fuzz : public testing::TestWithParam<uint32_t> {};

TEST_P(Fuzz, IsNearOneRankInFp64AndHasTheBitsOfStage0) {
  std::map<std::string, Distances> distances;
  for (const uint32_t seed : seeds_of(GetParam())) {
    const FuzzCase fuzz = fuzz_case(seed);
    SCOPED_TRACE(fmt::format("ZT_FUZZ_SEED={}: {}", seed, fuzz.text));
    const Outcome exact = exact_run(fuzz.config);
    Config config = fuzz.config;
    const Outcome run = train(config);
    expect_stage_0(config, run);
    Config one_rank = config;
    one_rank.ranks = 1;
    one_rank.micro_batches = config.by_hand ? config.ranks * config.micro_batches : 1;
    one_rank.stage = -1;
    auto& sums = distances[config.precision.text()];
    sums.runs += std::pow(distance(run.first_gradient, exact.first_gradient), 2);
    sums.one_rank += std::pow(distance(train(one_rank).first_gradient, exact.first_gradient), 2);
    config.precision = Precision::fp64;
    config.loss_scale = std::nullopt;
    expect_near(train(config), exact);
  }
  // The promise: at most twice the distance of one rank. It is checked for all cases together, because the rounding errors of a
  // single case are random.
  for (const auto& [precision, sums] : distances) {
    if (precision == Precision::fp64.text()) continue;
    EXPECT_LE(sums.runs, 4 * sums.one_rank) << precision;
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, Fuzz, testing::Range(uint32_t{0}, kGroups));

}  // namespace
}  // namespace zt::test
