// The trainer, except plain steps: steps by hand, evaluation, inference, errors, state.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "flat/adam.h"
#include "layers/layers.h"
#include "numerics/support/training.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

World one_rank() {
  return {};
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Misuse& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Trainer, ByHandEqualsTheMeanOfMicroBatchGradients) {
  Config config{.micro_batches = 2, .precision = Precision::fp64, .clip = 0};
  const auto by_hand = make_trainer(one_rank(), config);
  const Batch batch = global_batch(0);
  double mean = 0;
  for (int m = 0; m < 2; ++m) {
    mean += by_hand->forward(part_of(batch, m * 6, 6)) / 2;
    by_hand->backward();
  }
  const StepResult result = by_hand->finish_step();
  EXPECT_NEAR(result.loss, mean, 1e-14 * mean);

  // The same objective from two trainers with one micro-batch each: the mean of the gradients of the two losses.
  at::Tensor sum;
  for (int m = 0; m < 2; ++m) {
    const auto single = make_trainer(one_rank(), {.precision = Precision::fp64, .clip = 0});
    single->step(part_of(batch, m * 6, 6));
    const at::Tensor gradient = single->tensors().gradient("embedding.weight") / 2;
    sum = sum.defined() ? sum + gradient : gradient;
  }
  const at::Tensor got = by_hand->tensors().gradient("embedding.weight");
  EXPECT_LT((got - sum).norm().item<double>(), 1e-12 * sum.norm().item<double>());
}

TEST(Trainer, ByHandInTheWrongOrderIsRefused) {
  const auto trainer = make_trainer(one_rank(), {.micro_batches = 2});
  EXPECT_NE(refusal([&] { trainer->backward(); }).find("needs a trainer:forward"), std::string::npos);
  trainer->forward(part_of(global_batch(0), 0, 6));
  EXPECT_NE(refusal([&] { trainer->forward(part_of(global_batch(0), 0, 6)); }).find("called twice"), std::string::npos);
  trainer->backward();
  EXPECT_NE(refusal([&] { trainer->finish_step(); }).find("1 of 2 micro-batches"), std::string::npos);
  EXPECT_NE(refusal([&] { trainer->step(global_batch(0)); }).find("by hand are under way"), std::string::npos);
}

TEST(Trainer, NothingElseRunsInTheMiddleOfAStepByHand) {
  for (const int stage : {0, 3}) {
    spawn(2, [&](const World& world) {
      const auto trainer = make_trainer(world, {.ranks = 2, .micro_batches = 2, .stage = stage});
      const auto refuses = [&](const std::function<void()>& call) {
        EXPECT_NE(refusal(call).find("by hand are under way"), std::string::npos) << "stage " << stage;
      };
      const auto refuse_all = [&] {
        refuses([&] { trainer->step(part_of(global_batch(0), 0, 6)); });
        refuses([&] { trainer->evaluate(part_of(global_batch(0), 0, 6)); });
        refuses([&] { trainer->infer(Batch{{"tokens", global_batch(0).at("tokens")}}); });
        refuses([&] { trainer->tensors().gradient("embedding.weight"); });
        refuses([&] { trainer->tensors().set_parameter("embedding.weight", at::zeros({kVocab, 24})); });
      };
      for (int m = 0; m < 2; ++m) {
        trainer->forward(part_of(global_batch(0), 6 * world.rank + 3 * m, 3));
        refuse_all();
        trainer->backward();
        if (m == 0) refuse_all();
      }
      trainer->finish_step();
      trainer->evaluate(part_of(global_batch(0), 0, 6));
    });
  }
}

TEST(Trainer, ByHandIsTheSameAtAllStages) {
  const auto losses = [](int stage) {
    std::vector<double> all;
    spawn(2, [&](const World& world) {
      const auto trainer = make_trainer(world, {.ranks = 2, .micro_batches = 2, .stage = stage, .reduce_every = "micro_batch"});
      for (int step = 0; step < 3; ++step) {
        for (int m = 0; m < 2; ++m) {
          trainer->forward(part_of(global_batch(step), 6 * world.rank + 3 * m, 3));
          trainer->backward();
        }
        const StepResult result = trainer->finish_step();
        if (world.rank == 0) all.insert(all.end(), {result.loss, result.grad_norm.value()});
      }
    });
    return all;
  };
  const auto expected = losses(0);
  for (const int stage : {1, 2, 3}) EXPECT_EQ(losses(stage), expected) << stage;
}

TEST(Trainer, ParametersAndGradientsAreGatheredAtAllStages) {
  at::Tensor weight, gradient;
  for (const int stage : {0, 1, 2, 3}) {
    spawn(2, [&](const World& world) {
      const auto trainer = make_trainer(world, {.ranks = 2, .stage = stage});
      const auto values = trainer->tensors().parameter("embedding.weight") * 0.5;
      trainer->tensors().set_parameter("embedding.weight", values);
      EXPECT_TRUE(at::equal(trainer->tensors().parameter("embedding.weight"), values));
      trainer->step(part_of(global_batch(0), 6 * world.rank, 6));
      const auto after = trainer->tensors().parameter("embedding.weight"),
                 slope = trainer->tensors().gradient("embedding.weight");
      if (world.rank != 0) return;
      if (stage == 0) weight = after, gradient = slope;
      EXPECT_TRUE(at::equal(after, weight) && at::equal(slope, gradient)) << stage;
    });
  }
}

TEST(Trainer, EvaluationChangesNothingAndAgreesWithTheStepsLoss) {
  const auto trainer = make_trainer(one_rank(), {.precision = Precision::fp64});
  const Batch batch = global_batch(0);
  const double before = trainer->evaluate(batch).loss;
  EXPECT_EQ(before, trainer->evaluate(batch).loss);
  EXPECT_EQ(before, trainer->step(batch).loss);
  EXPECT_NE(before, trainer->evaluate(batch).loss);
}

TEST(Trainer, EvaluationIsEqualOverRanks) {
  double one = 0;
  spawn(1, [&](const World& world) {
    one = make_trainer(world, {.stage = 0, .precision = Precision::fp64})->evaluate(global_batch(0)).loss;
  });
  spawn(3, [&](const World& world) {
    const auto trainer = make_trainer(world, {.stage = 1, .precision = Precision::fp64});
    const double loss = trainer->evaluate(part_of(global_batch(0), world.rank * 4, 4)).loss;
    EXPECT_NEAR(loss, one, 1e-12 * one);
  });
}

TEST(Trainer, InferGivesLogits) {
  const auto trainer = make_trainer(one_rank(), {});
  const auto outputs = trainer->infer(Batch{{"tokens", global_batch(0).at("tokens")}});
  EXPECT_EQ(outputs.at("logits").sizes(), (std::vector<int64_t>{kSamples, kSeq, kVocab}));
}

TEST(Trainer, BadBatchesAreRefused) {
  const auto trainer = make_trainer(one_rank(), {.micro_batches = 5});
  EXPECT_NE(refusal([&] { trainer->step(Batch{}); }).find("the batch is empty"), std::string::npos);
  EXPECT_NE(refusal([&] { trainer->step(global_batch(0)); }).find("12 samples cannot be cut into 5"), std::string::npos);
  Batch uneven = global_batch(0);
  uneven["labels"] = uneven["labels"].narrow(0, 0, 10);
  EXPECT_NE(refusal([&] { trainer->step(uneven); }).find("have 10 and 12 samples"), std::string::npos);
  const Batch unlabelled{{"tokens", global_batch(0).at("tokens").narrow(0, 0, 10)}};
  EXPECT_NE(refusal([&] { trainer->step(unlabelled); }).find("labels"), std::string::npos);
}

TEST(Trainer, NoValidTokenIsAnError) {
  const auto trainer = make_trainer(one_rank(), {});
  Batch batch = global_batch(0);
  batch["labels"] = at::full_like(batch["labels"], -100);
  EXPECT_NE(refusal([&] { trainer->step(batch); }).find("no valid token"), std::string::npos);
}

TEST(Trainer, ParametersByName) {
  const auto trainer = make_trainer(one_rank(), {});
  const std::string& name = trainer->state().model->params[0].name;
  const at::Tensor ones = at::ones_like(trainer->tensors().parameter(name));
  trainer->tensors().set_parameter(name, ones);
  EXPECT_TRUE(at::equal(trainer->tensors().parameter(name), ones));
  EXPECT_NE(refusal([&] { trainer->tensors().set_parameter(name, at::ones({3})); }).find("the values are float32[3]"),
            std::string::npos);
  EXPECT_NE(refusal([&] { trainer->tensors().parameter(name + "x"); }).find("did you mean"), std::string::npos);
}

TEST(Trainer, NonFiniteGradientEndsTheRunWithTheParametersName) {
  const auto trainer = make_trainer(one_rank(), {});
  const std::string& name = trainer->state().model->params.back().name;
  trainer->tensors().set_parameter(name, at::full_like(trainer->tensors().parameter(name), std::nan("")));
  EXPECT_THROW(trainer->step(global_batch(0)), Fault);
}

class Drawing : public Layer {
 public:
  std::vector<at::Tensor> forward(at::TensorList in, Context&) override { return {in[0] + at::rand({1})}; }
  std::string kind() const override { return "drawing"; }
};

TEST(Trainer, ALayerThatDrawsFromTheDefaultGeneratorIsRefused) {
  const auto embedding = nn::make_embedding(Value::Table{{"vocab", kVocab}, {"hidden", 8}});
  const auto loss = nn::make_lm_loss(Value::Table{{"vocab", kVocab}, {"hidden", 8}});
  const auto model = std::make_shared<Model>(
      std::vector<NamedLayer>{{"embedding", embedding}, {"noise", std::make_shared<Drawing>()}, {"head", loss}}, 1);
  TrainerOptions options;
  options.optimizer = optim::make_adamw(Value::Table{{"lr", 1e-2}});
  const auto trainer = Trainer::make(std::make_shared<Program>(model, 1, Precision::fp32), options);
  EXPECT_NE(refusal([&] { trainer->step(global_batch(0)); }).find("layer 'noise' drew from LibTorch's default generator"),
            std::string::npos);
}

// Adds 1 to both of its buffers after each step.
class Stepping : public Layer, public LayerExtras {
 public:
  std::vector<at::Tensor> forward(at::TensorList in, Context&) override { return {in[0].clone()}; }
  std::vector<LayerBuffer> buffers() const override { return {{"first", at::zeros({2})}, {"second", at::zeros({2})}}; }
  bool has_update() const override { return true; }
  void update(const Stats&, const LayerBuffers& buffers) override {
    for (const auto& [name, values] : buffers) at::Tensor(values).add_(1);
  }
  std::string kind() const override { return "stepping"; }
};

TEST(Trainer, AFrozenBufferKeepsItsValues) {
  const auto stepping = std::make_shared<Stepping>();
  const auto embedding = nn::make_embedding(Value::Table{{"vocab", kVocab}, {"hidden", 8}});
  const auto loss = nn::make_lm_loss(Value::Table{{"vocab", kVocab}, {"hidden", 8}});
  const auto model =
      std::make_shared<Model>(std::vector<NamedLayer>{{"embedding", embedding}, {"stepping", stepping}, {"head", loss}}, 1);
  model->set_trainable("stepping\\.first", false);
  TrainerOptions options;
  options.optimizer = optim::make_adamw(Value::Table{{"lr", 1e-2}});
  const auto trainer = Trainer::make(std::make_shared<Program>(model, 1, Precision::fp32), options);
  for (int step = 0; step < 3; ++step) trainer->step(global_batch(step));
  EXPECT_TRUE(trainer->tensors().parameter("stepping.first").equal(at::zeros({2})));
  EXPECT_TRUE(trainer->tensors().parameter("stepping.second").equal(at::full({2}, 3.0F)));
}

TEST(Trainer, LossTermsAreOfTheObjective) {
  const auto trainer = make_trainer(one_rank(), {.micro_batches = 2});
  const StepResult result = trainer->step(global_batch(0));
  ASSERT_EQ(result.terms.size(), 1U);
  EXPECT_EQ(result.terms[0].name, "loss");
  EXPECT_EQ(result.terms[0].value, result.loss);
}

class Names : public Visitor {
 public:
  bool is_load() const override { return false; }
  void tensor(const std::string& name, const std::vector<int64_t>& shape, Piece piece) override {
    EXPECT_EQ(piece.data.numel(), piece.count);
    EXPECT_EQ(piece.boxes.size(), 1U);
    EXPECT_EQ(piece.boxes[0].end, shape);
    held[name] += piece.count;
  }
  void end_of_tensors() override {}
  void value(const std::string& name, Value& value) override { values[name] = value; }
  std::map<std::string, int64_t> held;
  std::map<std::string, Value> values;
};

TEST(Trainer, EachRankVisitsItsShardOfTheState) {
  for (const int stage : {0, 1}) {
    std::vector<Names> walks(3);
    std::map<std::string, int64_t> wanted;
    spawn(3, [&](const World& world) {
      const auto trainer = make_trainer(world, {.stage = stage});
      trainer->visit(walks[world.rank]);
      if (world.rank != 0) return;
      for (const ParamInfo& param : trainer->state().model->params) wanted["model/" + param.name] = param.numel();
    });
    for (const auto& [name, numel] : wanted) {
      int64_t held = 0;
      for (auto& walk : walks) held += walk.held[name];
      EXPECT_EQ(held, stage == 0 ? 3 * numel : numel) << name << " at stage " << stage;
    }
    EXPECT_EQ(walks[0].values.count("trainer/step"), 1U);
  }
}

}  // namespace
}  // namespace zt::test
