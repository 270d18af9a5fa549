// Steps of pipelines that fail on all ranks or on one, and are caught and repeated.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "layers/layers.h"
#include "numerics/support/failures.h"
#include "pipe/support/pipelines.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

TEST(FailedPipelineSteps, LeaveNoTrace) {
  for (const char* schedule : {"one_f_one_b", "zb_h1", "interleaved"}) {
    for (const int stage : {0, 3}) {
      for (const Failing failing : {Failing::all, Failing::last}) {
        SCOPED_TRACE(fmt::format("{}, stage {}, {} fail", schedule, stage, failing == Failing::all ? "all ranks" : "one rank"));
        const Config whole{.ranks = stage == 3 ? 2 : 1, .micro_batches = 3, .stage = stage};
        expect_failures_leave_no_trace(through({.ranks = 2, .name = schedule}, whole), failing, 5);
      }
    }
  }
}

// Returns its input, and fails in training in the micro-batch that `fails_in` says.
class Fragile : public Layer {
 public:
  explicit Fragile(const int& fails_in) : fails_in_(fails_in) {}
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    if (context.mode == Mode::train && context.micro_batch == fails_in_) misuse("boom in the layer");
    return {in[0]};
  }
  Io io() const override { return {}; }
  std::string kind() const override { return "fragile"; }

 private:
  const int& fails_in_;
};

// Three stages; the layer is on the middle one.
Config fragile(const int& fails_in) {
  Config config = through({.ranks = 3}, {.ranks = 1, .micro_batches = 4, .stage = 0});
  config.model = [&fails_in] {
    const Value::Table io{{"vocab", kVocab}, {"hidden", 8}};
    return std::make_shared<Model>(std::vector<NamedLayer>{{"embedding", nn::make_embedding(io)},
                                                           {"fragile", std::make_shared<Fragile>(fails_in)},
                                                           {"head", nn::make_lm_loss(io)}},
                                   3);
  };
  return config;
}

TEST(FailedPipelineSteps, AllStagesHearOfALayerThatFailsOnOne) {
  spawn(3, [](const World& world) {
    int never = -1, fails_in = -1;
    const auto plain = make_trainer(world, fragile(never)), failing = make_trainer(world, fragile(fails_in));
    for (int step = 0; step < 4; ++step) {
      fails_in = step;
      const std::string error = message_of<Misuse>([&] { failing->step(global_batch(step)); });
      EXPECT_CONTAINS(error, fmt::format("layer 'fragile' (fragile) in micro-batch {}: boom in the layer", step));
      if (world.rank != 1) {
        EXPECT_CONTAINS(error, "rank 1 of 'pp+dp' failed: ");
      }
      fails_in = -1;
      EXPECT_EQ(failing->step(global_batch(step)).loss, plain->step(global_batch(step)).loss);
    }
  });
}

TEST(FailedPipelineSteps, MistakesThatOneStageSees) {
  spawn(2, [](const World& world) {
    const auto trainer =
        make_trainer(world, through({.ranks = 2}, {.ranks = 1, .micro_batches = 4, .eval_micro_batches = 2, .stage = 0}));
    const double loss = trainer->evaluate(global_batch(0)).loss;
    Batch no_labels = global_batch(0), out_of_range = global_batch(0);
    no_labels.erase("labels");
    out_of_range["tokens"] = at::full_like(out_of_range["tokens"], kVocab);
    for (const Batch& wrong : {no_labels, out_of_range}) {
      EXPECT_NE(message_of<Error>([&] { trainer->step(wrong); }), "no error");
      EXPECT_NE(message_of<Error>([&] { trainer->evaluate(wrong); }), "no error");
      EXPECT_EQ(trainer->evaluate(global_batch(0)).loss, loss);
    }
    EXPECT_NE(message_of<Error>([&] { trainer->infer(out_of_range); }), "no error");
    const auto fails = [](const std::map<std::string, at::Tensor>&) -> Value { misuse("boom in the function"); };
    EXPECT_CONTAINS(message_of<Misuse>([&] { trainer->infer(global_batch(0), fails); }), "boom in the function");
    const auto tensor = [](const std::map<std::string, at::Tensor>& outputs) -> Value { return outputs.at("logits"); };
    EXPECT_CONTAINS(message_of<Misuse>([&] { trainer->infer(global_batch(0), tensor); }), "cannot be written as JSON");
    EXPECT_EQ(trainer->evaluate(global_batch(0)).loss, loss);
  });
}

}  // namespace
}  // namespace zt::test
