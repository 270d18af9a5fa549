// Splits one global batch over ranks and micro-batches in several ways. Runs in fp64 must be within 1e-12 of one rank. Runs in
// fp32 must be at most twice as far from the fp64 run as one rank in fp32. A gradient that is wrong by a factor in one
// combination fails.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "numerics/support/training.h"

namespace zt::test {
namespace {

struct BatchSplit {
  int ranks, micro_batches;
};
const BatchSplit kSplits[] = {{1, 2}, {1, 3}, {1, 12}, {2, 1}, {2, 3}, {3, 2}, {4, 1}, {4, 3}};

TEST(Mesh, Float64WithinTwelveDigitsOfOneRank) {
  for (const bool tied : {true, false}) {
    Config config{.precision = Precision::fp64, .dropout = 0.1, .tied = tied};
    const Outcome one = train(config);
    for (const BatchSplit& split : kSplits) {
      config.ranks = split.ranks;
      config.micro_batches = split.micro_batches;
      config.stage = 0;
      const Outcome run = train(config);
      SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches", split.ranks, split.micro_batches));
      EXPECT_LT(distance(run.losses, one.losses), 1e-12);
      EXPECT_LT(distance(run.norms, one.norms), 1e-12);
      EXPECT_LT(distance(run.first_gradient, one.first_gradient), 1e-12);
    }
  }
}

// Gradients and losses of several problems, joined into one vector. The rounding errors of a single run are random: two runs can
// differ by a factor of two by chance. The joined vectors average this out. The errors of a run's losses are dependent on each
// other, because each step goes on from the weights of the one before: what counts is the number of problems.
struct Joined {
  at::Tensor gradients, losses;
};

Joined train_problems(Config config) {
  constexpr int kProblems = 24;
  std::vector<at::Tensor> gradients, losses;
  for (config.seed = 0; config.seed < kProblems; ++config.seed) {
    const Outcome outcome = train(config);
    gradients.push_back(outcome.first_gradient);
    losses.push_back(at::tensor(outcome.losses, at::kDouble));
  }
  return {at::cat(gradients), at::cat(losses)};
}

TEST(Mesh, Float32NoFurtherThanTwiceOneRank) {
  const Joined exact = train_problems({.precision = Precision::fp64, .steps = 6});
  const Joined one = train_problems({.precision = Precision::fp32, .steps = 6});
  const double gradient_bound = 2 * distance(one.gradients, exact.gradients);
  const double loss_bound = 2 * distance(one.losses, exact.losses);
  for (const BatchSplit& split : kSplits) {
    const Joined run = train_problems({.ranks = split.ranks, .micro_batches = split.micro_batches, .stage = 0, .steps = 6});
    SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches", split.ranks, split.micro_batches));
    EXPECT_LE(distance(run.gradients, exact.gradients), gradient_bound);
    EXPECT_LE(distance(run.losses, exact.losses), loss_bound);
  }
}

}  // namespace
}  // namespace zt::test
