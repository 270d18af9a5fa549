// Calls that all ranks must refuse in the same way, without changing anything.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "layers/layers.h"
#include "numerics/support/odd_layers.h"
#include "numerics/support/training.h"
#include "support/message.h"
#include "support/spawn.h"

namespace zt::test {
namespace {

using Table = Value::Table;

// Tests calls that communicate: a step and an evaluation always do, an inference only if parameters are gathered.
TEST(Refusals, ACallOfOneRankOnlyIsRefusedByAll) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool infers : {false, true}) {
      if (infers && stage < 3) continue;
      const Config config{.ranks = 2, .stage = stage, .steps = 2};
      const Outcome never = train(config);
      std::vector<std::string> said(2);
      spawn(2, [&](const World& world) {
        RankRun run(world, config);
        run.step();
        const Batch mine = part_of(global_batch(1), 6 * world.rank, 6);
        said[static_cast<size_t>(world.rank)] = message_of<Misuse>([&] {
          if (world.rank == 1) run.trainer().step(mine);
          else if (infers) run.trainer().infer(Batch{{"tokens", mine.at("tokens")}});
          else run.trainer().evaluate(mine);
        });
        run.step();
        expect_equal(run.finish(), never);
      });
      EXPECT_EQ(said[0], said[1]) << "stage " << stage;
      EXPECT_CONTAINS(said[0], fmt::format("rank 0 {} at step 1 where rank 1 trains at step 1", infers ? "infers" : "evaluates"));
    }
  }
}

TEST(Refusals, AModelThatCannotBePlannedTrainsAsBefore) {
  const auto model = [] {
    return std::make_shared<Model>(
        std::vector<NamedLayer>{{"embedding", nn::make_embedding(Table{{"vocab", kVocab}, {"hidden", 9}})},
                                {"host", make_unplannable()},
                                {"head", nn::make_lm_loss(Table{{"vocab", kVocab}, {"hidden", 9}})}},
        5);
  };
  for (const int stage : {0, 1, 3}) {
    const Config config{.ranks = 2, .stage = stage, .steps = 3, .model = model};
    const Outcome unplanned = train(config);
    std::vector<Outcome> planned(2);
    spawn(2, [&](const World& world) {
      RankRun run(world, config);
      const Batch mine = part_of(global_batch(0), 6 * world.rank, 6);
      const auto values = [&] { return run.trainer().state().parameters[0]; };
      for (int step = 0; step < 3; ++step) {
        const at::Tensor before = values();
        EXPECT_SAYS("layer 'host' cannot be planned", run.trainer().predict_activations(mine));
        EXPECT_TRUE(values().is_same(before));
        run.step();
      }
      planned[static_cast<size_t>(world.rank)] = run.finish();
    });
    expect_equal(planned[0], unplanned);
    expect_equal(planned[1], unplanned);
  }
}

}  // namespace
}  // namespace zt::test
