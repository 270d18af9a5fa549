// The memory of a trainer: predicted, measured, and not allocated at all.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "layers/layers.h"
#include "numerics/support/training.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

int64_t measured_activations(Trainer& trainer) {
  for (const MemoryLine& line : trainer.memory()) {
    if (line.kind == "activations") return line.measured;
  }
  return -1;
}

// A step over shapes that are known measures nothing, so the number stays that of the first step over such shapes.
TEST(TrainerMemory, ActivationsAreMeasuredOncePerShape) {
  spawn(1, [](const World& world) {
    const auto trainer = make_trainer(world, {});
    const auto step_over = [&](int64_t samples) {
      Batch batch = global_batch(0);
      for (auto& [name, field] : batch) field = field.narrow(0, 0, samples);
      trainer->step(batch);
      return measured_activations(*trainer);
    };
    EXPECT_EQ(measured_activations(*trainer), -1);
    const int64_t small = step_over(4);
    EXPECT_EQ(step_over(4), small);
    EXPECT_GT(step_over(12), 2 * small);
    EXPECT_EQ(step_over(4), small);
  });
}

TEST(TrainerMemory, ADryTrainerHasNoBuffers) {
  spawn(1, [](const World& world) {
    const auto trainer = make_trainer(world, {}, {.dry = true});
    const std::string& name = trainer->state().model->params[0].name;
    for (const auto& call :
         std::vector<std::function<void()>>{[&] { trainer->step(global_batch(0)); }, [&] { trainer->tensors().parameter(name); },
                                            [&] { trainer->tensors().gradient(name); }, [&] { trainer->tensors().master(name); },
                                            [&] { trainer->backward(); }}) {
      EXPECT_CONTAINS(message_of<Misuse>(call), "this trainer is dry");
    }
    trainer->set_lr(0.5);
    EXPECT_GT(trainer->predict_activations(global_batch(0)), 0);
    EXPECT_NE(trainer->report().find("activations"), std::string::npos);
  });
}

// The peak of split backwards is in an I of attention, which has temporaries of its own.
TEST(TrainerMemory, ActivationsOfAttentionArePredicted) {
  for (const char* family : {"gpt2", "llama"}) {
    for (const bool splits : {false, true}) {
      for (const int recompute_every : {0, 1}) {
        Config config{.micro_batches = 2, .recompute_every = recompute_every, .split_backward = splits};
        config.model = [&] {
          return nn::make_gpt(Value::Table{
              {"layers", 2}, {"hidden", 32}, {"heads", 2}, {"vocab", 11}, {"seq", 48}, {"ffn", 16}, {"family", family}});
        };
        spawn(1, [&](const World& world) {
          const auto trainer = make_trainer(world, config);
          const auto batch_of = [](int64_t samples) {
            const at::Tensor tokens = at::arange(samples * 48).remainder(11).view({samples, 48});
            return Batch{{"tokens", tokens}, {"labels", tokens}};
          };
          trainer->step(batch_of(2));  // makes the tables of rotary positions, which stay
          const Batch batch = batch_of(4);
          trainer->step(batch);
          const auto measured = static_cast<double>(measured_activations(*trainer));
          EXPECT_NEAR(static_cast<double>(trainer->predict_activations(batch)), measured, 0.003 * measured)
              << family << (splits ? ", split" : ", whole") << ", recompute_every " << recompute_every;
        });
      }
    }
  }
}

// Returns the predicted activations of a step of 96 rows in fp32, and checks that they are those measured.
int64_t activations_of(const Value::Table& options, Config config) {
  int64_t activations = 0;
  config.model = [&] {
    Value::Table all{{"layers", 2}, {"hidden", 16}, {"heads", 2}, {"seq", 48}};
    all.insert(options.begin(), options.end());
    return nn::make_gpt(all);
  };
  spawn(1, [&](const World& world) {
    const auto trainer = make_trainer(world, config);
    const at::Tensor tokens = at::arange(2 * 48).remainder(11).view({2, 48});
    const Batch batch{{"tokens", tokens}, {"labels", tokens}};
    trainer->step(batch);
    activations = trainer->predict_activations(batch);
    const auto measured = static_cast<double>(measured_activations(*trainer));
    EXPECT_NEAR(static_cast<double>(activations), measured, 0.003 * measured);
  });
  return activations;
}

// The peak of a model whose logits are most of its memory is that of the logits in the backward of the head.
TEST(TrainerMemory, ATileOfTheHeadHoldsItsLogitsOnly) {
  constexpr int64_t kRowOfLogits = 2000 * 4;
  const Value::Table whole{{"vocab", 2000}, {"ffn", 16}}, tiled{{"vocab", 2000}, {"ffn", 16}, {"head_tile", 24}};
  EXPECT_EQ(activations_of(whole, {}) - activations_of(tiled, {}), (96 - 24) * kRowOfLogits);
  // The second micro-batch of 48 rows adds the sum of its tiles, 16 rows of 2000 numbers, to that of the first.
  const Config twice{.micro_batches = 2};
  EXPECT_EQ(activations_of(whole, twice) - activations_of(tiled, twice), (48 - 24 - 16) * kRowOfLogits);
}

// Without tiles, the backward of the second block has the columns before the activation of both blocks, those after it, and their
// gradient. With tiles, it has only those of one tile, and none of the first block.
TEST(TrainerMemory, ATileOfMlpsHoldsItsColumnsOnly) {
  constexpr int64_t kRowOfColumns = 2000 * 4;
  const Value::Table whole{{"vocab", 11}, {"ffn", 2000}, {"bias", false}};
  Value::Table tiled = whole;
  tiled["mlp_tile"] = 24;
  EXPECT_EQ(activations_of(whole, {}) - activations_of(tiled, {}), (4 * 96 - 3 * 24) * kRowOfColumns);
  // A split backward has the sums of the tiles besides, of twice 16 rows.
  const Config split{.split_backward = true};
  EXPECT_EQ(activations_of(whole, split) - activations_of(tiled, split), (4 * 96 - 3 * 24 - 2 * 16) * kRowOfColumns);
}

TEST(TrainerMemory, IsPredictedAndMeasured) {
  for (const char* reduce_every : {"step", "micro_batch"}) {
    spawn(2, [&](const World& world) {
      const auto trainer = make_trainer(world, {.micro_batches = 2, .stage = 1, .reduce_every = reduce_every});
      Batch mine = global_batch(0);
      for (auto& [name, field] : mine) field = field.narrow(0, world.rank * 6, 6);
      trainer->step(mine);
      int64_t activations = 0;
      for (const MemoryLine& line : trainer->memory()) {
        if (line.kind == "activations") activations = line.measured;
        // A step also holds tensors of single elements, which do not occur on the device meta.
        const bool is_near = line.kind == "activations" || line.kind == "total";
        const double slack = is_near ? 0.05 * static_cast<double>(line.measured) : 0;
        EXPECT_NEAR(static_cast<double>(line.predicted), static_cast<double>(line.measured), slack)
            << line.kind << " with reduce_every = " << reduce_every;
      }
      // At least the logits of one micro-batch of 3 samples are held at the same time.
      EXPECT_GT(activations, 3 * kSeq * kVocab * 4);
      EXPECT_LT(activations, 64 << 20);
    });
  }
}

}  // namespace
}  // namespace zt::test
