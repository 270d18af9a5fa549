// Steps of models with experts that fail on all ranks or on one, and are caught and repeated.
#include <gtest/gtest.h>

#include "moe/support/mixtures.h"
#include "numerics/support/failures.h"

namespace zt::test {
namespace {

Config config_that_fails(const Mixture& mixture, int data_ranks, int stage) {
  Config config{.ranks = data_ranks * mixture.expert_ranks, .micro_batches = 2, .stage = stage};
  config.expert_ranks = mixture.expert_ranks;
  config.samples = 16;
  config.model = [mixture] { return make_mixture(mixture); };
  return config;
}

TEST(FailedMoeSteps, LeaveNoTrace) {
  for (const std::string& kind : kDispatchers) {
    for (const int stage : {0, 3}) {
      for (const Failing failing : {Failing::all, Failing::last}) {
        SCOPED_TRACE(fmt::format("{}, stage {}, {} fail", kind, stage, failing == Failing::all ? "all ranks" : "one rank"));
        const Mixture mixture{.expert_ranks = 2, .dispatcher = kind, .overlaps = stage == 3};
        expect_failures_leave_no_trace(config_that_fails(mixture, stage == 3 ? 2 : 1, stage), failing, 8);
      }
    }
  }
}

TEST(FailedMoeSteps, LeaveNoTraceWithRecomputeAndSplitBackwards) {
  Config config = config_that_fails({.expert_ranks = 2, .router = {{"score", "sigmoid"}, {"bias", true}}}, 1, 2);
  config.recompute_every = 1;
  expect_failures_leave_no_trace(config, Failing::last, 6);
  config.recompute_every = 0;
  config.split_backward = true;
  expect_failures_leave_no_trace(config, Failing::last, 6);
}

}  // namespace
}  // namespace zt::test
