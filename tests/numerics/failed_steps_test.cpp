// Steps that fail on all ranks or on one, and are caught and repeated.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "numerics/support/failures.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

void expect_no_trace_at_all_stages(Config config, int stride) {
  config.ranks = 2;
  config.micro_batches = 2;
  for (const Failing failing : {Failing::all, Failing::last}) {
    for (config.stage = 0; config.stage <= 3; ++config.stage) {
      SCOPED_TRACE(fmt::format("stage {}, {} fail", config.stage, failing == Failing::all ? "all ranks" : "one rank"));
      expect_failures_leave_no_trace(config, failing, stride);
    }
  }
}

TEST(FailedSteps, LeaveNoTraceAtAnyStage) {
  expect_no_trace_at_all_stages({}, 1);
}

TEST(FailedSteps, LeaveNoTraceByHand) {
  expect_no_trace_at_all_stages({.by_hand = true}, 1);
}

TEST(FailedSteps, LeaveNoTraceInBf16WithRecomputeAndSplitBackwards) {
  expect_no_trace_at_all_stages({.precision = Precision::bf16, .recompute_every = 1, .split_backward = true}, 6);
}

TEST(FailedSteps, LeaveNoTraceOnOneRank) {
  expect_failures_leave_no_trace({.micro_batches = 2}, Failing::all);
  expect_failures_leave_no_trace({.micro_batches = 2, .by_hand = true}, Failing::all);
}

TEST(FailedSteps, LeaveNoTraceWithUnitsThatStayWhole) {
  for (const char* keep : {"forward", "max_live"}) {
    Config config{.ranks = 2, .micro_batches = 2, .stage = 3, .shard = {{"keep", keep}}};
    if (std::string(keep) == "max_live") config.shard["max_live"] = 20000;
    expect_failures_leave_no_trace(config, Failing::last, 2);
  }
  const Config overlapping{.ranks = 2, .micro_batches = 2, .stage = 3, .prefetch = 2, .shard = {{"overlap", true}}};
  expect_failures_leave_no_trace(overlapping, Failing::last, 2);
  const Config persisting{.ranks = 2, .micro_batches = 2, .stage = 3, .persist_below = 3000};
  expect_failures_leave_no_trace(persisting, Failing::all, 2);
}

// The mistakes are in the batch of one rank, in the second micro-batch. Every rank hears of it, and goes on with the right batch.
TEST(FailedSteps, AMistakeInTheDataOfOneRank) {
  const auto out_of_range = [](Batch& batch) { batch["tokens"] = at::full_like(batch["tokens"], kVocab + 1); };
  const auto no_labels = [](Batch& batch) { batch.erase("labels"); };
  const auto short_labels = [](Batch& batch) { batch["labels"] = batch["labels"].narrow(1, 0, 3).contiguous(); };
  for (const auto& spoil : std::vector<std::function<void(Batch&)>>{out_of_range, no_labels, short_labels}) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(stage);
      const Config config{.ranks = 2, .micro_batches = 2, .stage = stage};
      std::vector<double> clean;
      spawn(2, [&](const World& world) {
        const auto plain = make_trainer(world, config), failing = make_trainer(world, config);
        for (int step = 0; step < 2; ++step) {
          Batch mine = part_of(global_batch(step), world.rank * 6, 6), wrong = mine;
          if (world.rank == 1) spoil(wrong);
          const std::string refusal = message_of<Error>([&] { failing->step(wrong); });
          EXPECT_NE(refusal, "no error");
          if (world.rank == 0) {
            EXPECT_CONTAINS(refusal, "rank 1 of 'dp' failed: ");
          }
          EXPECT_NE(message_of<Error>([&] { failing->evaluate(wrong); }), "no error");
          EXPECT_EQ(failing->step(mine).loss, plain->step(mine).loss);
        }
      });
    }
  }
}

TEST(FailedSteps, HaveNoGradient) {
  const auto trainer = make_trainer(World(), {.micro_batches = 2});
  const std::string name = trainer->state().model->params[0].name;
  trainer->step(global_batch(0));
  trainer->tensors().gradient(name);
  Batch wrong = global_batch(1);
  wrong["tokens"] = at::full_like(wrong["tokens"], kVocab + 1);
  EXPECT_ANY_THROW(trainer->step(wrong));
  EXPECT_SAYS("the last step failed, so there is no gradient", trainer->tensors().gradient(name));
}

}  // namespace
}  // namespace zt::test
