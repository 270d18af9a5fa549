// Steps over lists of micro-batches, which may differ in shape.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "execute/counts.h"
#include "mesh/mesh.h"
#include "numerics/support/training.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

// Ignores the labels that `shortened` cuts off, of samples [begin, begin + count).
void ignore_rest(Batch& batch, int64_t begin, int64_t count, int64_t tokens) {
  batch["labels"].narrow(0, begin, count).narrow(1, tokens, kSeq - tokens).fill_(-100);
}

// Trains three steps. `cut` returns what the trainer is given for a rank's part of the global batch.
Outcome train_with(Config config, const std::function<StepBatch(const Batch&)>& cut) {
  config.cut = cut;
  config.steps = 3;
  return train(config);
}

void expect_near(const Outcome& a, const Outcome& b, double bound) {
  for (size_t step = 0; step < a.losses.size(); ++step) {
    EXPECT_LE(std::abs(a.losses[step] - b.losses[step]), bound * b.losses[step]);
    EXPECT_LE(std::abs(a.norms[step] - b.norms[step]), bound * b.norms[step]);
  }
  EXPECT_LE((a.weights - b.weights).norm().item<double>(), bound * b.weights.norm().item<double>());
}

TEST(MicroBatches, AListOfEqualPartsIsTheEvenCut) {
  for (const int stage : {0, 3}) {
    Config config{.ranks = 2, .micro_batches = 3, .stage = stage, .dropout = 0.1};
    const Outcome list = train_with(config, [](const Batch& batch) { return cut_at(batch, {2, 2, 2}); });
    const Outcome even = train_with(config, [](const Batch& batch) { return batch; });
    EXPECT_EQ(list.losses, even.losses);
    EXPECT_EQ(list.norms, even.norms);
    EXPECT_TRUE(at::equal(list.weights, even.weights));
  }
}

// Sums are rounded at other places, so the bound is that of fp64. Plain SGD: Adam's first steps would enlarge rounding errors.
TEST(MicroBatches, UnevenPartsGiveTheSameStep) {
  Config config{.micro_batches = 3, .precision = Precision::fp64, .dropout = 0.1, .is_plain = true};
  const Outcome even = train_with(config, [](const Batch& batch) { return batch; });
  expect_near(train_with(config, [](const Batch& batch) { return cut_at(batch, {1, 8, 3}); }), even, 1e-12);
}

// Tokens that are left out count as tokens whose labels are ignored: attention is causal.
TEST(MicroBatches, ShorterSamplesGiveTheStepOfIgnoredLabels) {
  for (const int stage : {0, 1, 3}) {
    Config config{.ranks = 2, .micro_batches = 2, .stage = stage, .precision = Precision::fp64, .is_plain = true};
    const Outcome ragged = train_with(config, [](const Batch& batch) {
      auto parts = cut_at(batch, {2, 4});
      parts[0] = shortened(parts[0], 6);
      return parts;
    });
    const Outcome padded = train_with(config, [](Batch batch) {
      for (auto& [name, field] : batch) field = field.clone();
      ignore_rest(batch, 0, 2, 6);
      return batch;
    });
    expect_near(ragged, padded, 1e-12);
  }
}

TEST(MicroBatches, StagesAreEqualForRaggedLists) {
  const auto ragged = [](const Batch& batch) {
    auto parts = cut_at(batch, {4, 2});
    parts[1] = shortened(parts[1], 3);
    return parts;
  };
  Config config{.ranks = 2, .micro_batches = 2, .stage = 0, .reduce_every = "micro_batch"};
  const Outcome first = train_with(config, ragged);
  config.stage = 3;
  const Outcome last = train_with(config, ragged);
  EXPECT_EQ(first.losses, last.losses);
  EXPECT_EQ(first.norms, last.norms);
  EXPECT_TRUE(at::equal(first.weights, last.weights));
}

TEST(MicroBatches, MemoryIsPredictedForEachShape) {
  spawn(1, [](const World& world) {
    const auto trainer = make_trainer(world, {.micro_batches = 3});
    Batch batch = global_batch(0);
    for (auto& [name, field] : batch) field = field.repeat({8, 1});
    auto parts = cut_at(batch, {16, 72, 8});
    parts[0] = shortened(parts[0], 4);
    trainer->step(parts);
    for (const MemoryLine& line : trainer->memory()) {
      if (line.kind != "activations") continue;
      EXPECT_NEAR(static_cast<double>(line.predicted), static_cast<double>(line.measured),
                  0.05 * static_cast<double>(line.measured));
      EXPECT_EQ(trainer->predict_activations(parts), line.predicted);
    }
  });
}

TEST(MicroBatches, WrongListsAreRefused) {
  spawn(1, [](const World& world) {
    const auto trainer = make_trainer(world, {.micro_batches = 2, .eval_micro_batches = 2});
    const Batch batch = global_batch(0);
    const auto complaint = [&](std::vector<Batch> list) { return message_of<Misuse>([&] { trainer->step(std::move(list)); }); };
    EXPECT_CONTAINS(complaint(cut_at(batch, {4, 4, 4})), "the list has 3 micro-batches, but a step of this program has 2");
    EXPECT_CONTAINS(complaint(cut_at(batch, {12, 0})), "micro-batch 1: the batch has no samples");
    auto parts = cut_at(batch, {6, 6});
    parts[1].erase("labels");
    EXPECT_CONTAINS(complaint(parts), "micro-batch 1 has the fields tokens, and micro-batch 0 has labels, tokens");
    EXPECT_EQ(trainer->global_step(), 0);
    parts = cut_at(batch, {5, 7});
    EXPECT_EQ(trainer->infer(parts).at("logits").size(0), 12);
    EXPECT_GT(trainer->evaluate(parts).loss, 0);
    parts[1] = shortened(parts[1], 4);
    EXPECT_CONTAINS(message_of<Misuse>([&] { trainer->infer(parts); }), "so they cannot be joined along the samples");
  });
}

// Loss layers on several ranks of a pipeline count the same tokens once.
TEST(MicroBatches, TokensOfOneGroupAreCountedOnce) {
  spawn(4, [](const World& world) {
    const auto mesh = comm::make_mesh(world, {.axes = {{"pp", 2}, {"dp", 2}}});
    Communicator& comm = *mesh->world()->communicator;
    const int64_t group = mesh->coord()["dp"];
    const Counts mine{.tokens = 10 + group, .samples = 3};
    const Counts total = sum_counts(comm, mine, {.is_counted = true, .group = group}, Mode::train, 0);
    EXPECT_EQ(total.tokens, 10 + 11);
    EXPECT_EQ(total.samples, 6);
    const Counts one_stage = sum_counts(comm, {.tokens = world.rank < 2 ? 0 : mine.tokens, .samples = 3},
                                        {.is_counted = true, .group = group}, Mode::train, 0);
    EXPECT_EQ(one_stage.tokens, 21);
    // The ranks of the second stage state 5 samples in their 3 rows.
    const Counts stated{.tokens = 0, .samples = world.rank < 2 ? 3 : 5};
    EXPECT_EQ(sum_counts(comm, stated, {.group = group, .rows = 3}, Mode::train, 0).samples, 10);
    const auto other_samples = [&] {
      sum_counts(comm, {.tokens = 0, .samples = 4 + world.rank}, {.group = group, .rows = 3}, Mode::train, 0);
    };
    EXPECT_CONTAINS(message_of<Misuse>(other_samples), "count 4 and 6 samples in the same rows");
    const auto other_rows = [&] { sum_counts(comm, stated, {.group = group, .rows = 3 + group}, Mode::train, 0); };
    EXPECT_CONTAINS(message_of<Misuse>(other_rows), "rank 0 has 3 samples and rank 1 has 4");
    const auto disagree = [&] {
      sum_counts(comm, {.tokens = 10 + world.rank, .samples = 3}, {.is_counted = true, .group = group}, Mode::train, 0);
    };
    EXPECT_CONTAINS(message_of<Misuse>(disagree), "the loss layers of the ranks 0 and 2");
  });
}

}  // namespace
}  // namespace zt::test
