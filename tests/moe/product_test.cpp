// Mixtures of experts on every combination of layout, stage, dispatcher, pipeline, router and recompute, compared with one rank
// in fp64: losses, norms and the gradient as one vector must be within 1e-12.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "moe/support/mixtures.h"
#include "numerics/support/training.h"
#include "pipe/support/pairs.h"
#include "split/split.h"
#include "support/exhaustive.h"

namespace zt::test {
namespace {

struct RankLayout {
  int expert_ranks, data_ranks;
  int64_t experts;  // 0: either number divides
};
const RankLayout kAllLayouts[] = {{1, 1, 0}, {1, 2, 0}, {2, 1, 0}, {2, 2, 0}, {3, 1, 6}, {4, 1, 4}};
const std::string kPipelines[] = {"", "one_f_one_b", "zb_v"};
const int64_t kTopK[] = {1, 2, 4};
const Value::Table kRouters[] = {
    {{"losses", Value::Table{{"balance", 0.1}, {"z", 0.01}}}},
    {{"score", "sigmoid"}, {"normalise", "selected"}, {"bias", true}, {"losses", Value::Table{{"balance", 0.1}}}},
    {{"capacity", Value::Table{{"train", 0.75}, {"min", 1}}},
     {"softmax_after", true},
     {"losses", Value::Table{{"balance", 0.1}}}},
};

struct Case {
  RankLayout layout;
  int stage;
  std::string pipeline;
  Mixture mixture;
  int recompute_every;

  std::string text() const {
    return fmt::format("ep {}, dp {}, stage {}, {}, {}, {} experts, top {}, {}, recompute {}", layout.expert_ranks,
                       layout.data_ranks, stage, mixture.dispatcher, pipeline.empty() ? "no pipeline" : pipeline, mixture.experts,
                       mixture.top_k, Value(mixture.router).to_json().dump(), recompute_every);
  }
};

// The factors: layout, stage, dispatcher, pipeline, top k, experts, router, recompute.
std::vector<Case> chosen_cases() {
  const std::vector<int> levels{6, 4, static_cast<int>(kDispatchers.size()), 3, 3, 2, 3, 2};
  std::vector<Case> cases;
  for (const auto& choice : is_exhaustive() ? product(levels) : pairwise(levels, 1)) {
    const RankLayout& layout = kAllLayouts[choice[0]];
    const int64_t experts = layout.experts > 0 ? layout.experts : 4 + 2 * choice[5];
    const Mixture mixture{.experts = experts,
                          .top_k = kTopK[choice[4]],
                          .expert_ranks = layout.expert_ranks,
                          .dispatcher = kDispatchers[choice[2]],
                          .overlaps = choice[1] % 2 == 1,
                          .router = kRouters[choice[6]]};
    cases.push_back({layout, choice[1], kPipelines[choice[3]], mixture, choice[7]});
  }
  return cases;
}

Config product_config(const Mixture& mixture) {
  Config config{.micro_batches = 3, .stage = 0, .precision = Precision::fp64};
  config.gradient = true;
  config.steps = 2;
  config.samples = 36;  // 1 to 4 ranks can divide them into 3 micro-batches
  config.model = [mixture] { return make_mixture(mixture); };
  return config;
}

// Trains on one rank, once for each mixture.
const Outcome& reference(Mixture mixture) {
  static std::map<std::string, Outcome> known;
  const std::string key = fmt::format("{} {} {}", mixture.experts, mixture.top_k, Value(mixture.router).to_json().dump());
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  mixture.expert_ranks = 1;
  Config config = product_config(mixture);
  config.expert_ranks = 1;
  return known[key] = train(config);
}

Outcome on_many_ranks(const Case& chosen) {
  Config config = product_config(chosen.mixture);
  config.expert_ranks = chosen.layout.expert_ranks;
  config.ranks = chosen.layout.expert_ranks * chosen.layout.data_ranks;
  config.stage = chosen.stage;
  config.recompute_every = chosen.recompute_every;
  if (chosen.pipeline.empty()) return train(config);
  config.stage_ranks = 2;
  config.ranks *= 2;
  config.split = [&](std::shared_ptr<Axis> axis) {
    pipe::SplitOptions options{.axis = std::move(axis), .name = chosen.pipeline};
    options.partition.rule = "uniform";
    return pipe::make_split(std::move(options));
  };
  return train(config);
}

constexpr int kParts = 12;  // of the cases, so that they can be spread over processes

class MoeProduct : public testing::TestWithParam<int> {};

TEST_P(MoeProduct, IsWithinTwelveDigitsOfOneRank) {
  const auto cases = chosen_cases();
  for (size_t i = static_cast<size_t>(GetParam()); i < cases.size(); i += kParts) {
    SCOPED_TRACE(cases[i].text());
    const Outcome run = on_many_ranks(cases[i]), &one = reference(cases[i].mixture);
    EXPECT_LT(distance(run.losses, one.losses), 1e-12);
    EXPECT_LT(distance(run.norms, one.norms), 1e-12);
    EXPECT_LT(distance(run.first_gradient, one.first_gradient), 1e-12);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MoeProduct, testing::Range(0, kParts));

}  // namespace
}  // namespace zt::test
