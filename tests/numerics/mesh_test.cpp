// Any mesh and any cut of one global batch: fp64 within 1e-12 of the one-rank run, fp32 not much further from the fp64 run
// than one rank's fp32 is. A gradient that is off by a factor in one combination fails here.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "training.h"

namespace zt::test {
namespace {

struct Cut {
  int ranks, micro_batches;
};
const Cut kCuts[] = {{1, 2}, {1, 3}, {1, 12}, {2, 1}, {2, 3}, {3, 2}, {4, 1}, {4, 3}};

TEST(Mesh, Float64WithinTwelveDigitsOfOneRank) {
  for (const bool tied : {true, false}) {
    Config config{.precision = Precision::fp64, .dropout = 0.1, .tied = tied};
    const Outcome one = train(config);
    for (const Cut& cut : kCuts) {
      config.ranks = cut.ranks;
      config.micro_batches = cut.micro_batches;
      config.stage = 0;
      const Outcome run = train(config);
      SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches", cut.ranks, cut.micro_batches));
      EXPECT_LT(distance(run.losses, one.losses), 1e-12);
      EXPECT_LT(distance(run.norms, one.norms), 1e-12);
      EXPECT_LT(distance(run.first_gradient, one.first_gradient), 1e-12);
    }
  }
}

// One run's rounding errors are one draw of a random quantity, and a factor of two between two single draws is chance: the
// distances are those of several problems' gradients and losses joined into one vector.
struct Joined {
  at::Tensor gradients, losses;
};

Joined train_problems(Config config) {
  constexpr int kProblems = 6;
  std::vector<at::Tensor> gradients, losses;
  for (config.seed = 0; config.seed < kProblems; ++config.seed) {
    const Outcome outcome = train(config);
    gradients.push_back(outcome.first_gradient);
    losses.push_back(at::tensor(outcome.losses, at::kDouble));
  }
  return {at::cat(gradients), at::cat(losses)};
}

TEST(Mesh, Float32NoFurtherThanTwiceOneRank) {
  const Joined exact = train_problems({.precision = Precision::fp64, .steps = 20});
  const Joined one = train_problems({.precision = Precision::fp32, .steps = 20});
  const double gradient_bound = 2 * distance(one.gradients, exact.gradients);
  const double loss_bound = 2 * distance(one.losses, exact.losses);
  for (const Cut& cut : kCuts) {
    const Joined cut_up = train_problems({.ranks = cut.ranks, .micro_batches = cut.micro_batches, .stage = 0, .steps = 20});
    SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches", cut.ranks, cut.micro_batches));
    EXPECT_LE(distance(cut_up.gradients, exact.gradients), gradient_bound);
    EXPECT_LE(distance(cut_up.losses, exact.losses), loss_bound);
  }
}

}  // namespace
}  // namespace zt::test
