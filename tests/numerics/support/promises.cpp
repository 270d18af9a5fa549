#include "numerics/support/promises.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace zt::test {

namespace {

void expect_equal_with_gradients(const Outcome& a, const Outcome& b) {
  expect_equal(a, b);
  EXPECT_TRUE(at::equal(a.first_gradient, b.first_gradient));
}

// Runs all stages of a configuration, which sets ranks, micro-batches, reduce_every and precision. Expects equal bits and calls
// `check` with each run.
void expect_equal_stages(Config config, const std::function<void(const Outcome&)>& check) {
  Outcome first;
  for (config.stage = 0; config.stage <= 3; ++config.stage) {
    for (const bool is_set : {true, false}) {
      if (!is_set && config.stage == 0) continue;
      config.node_shared = is_set ? std::optional(false) : std::nullopt;
      SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches reduced every {}, {}, stage {}, node_shared {}", config.ranks,
                               config.micro_batches, config.reduce_every, config.precision.text(), config.stage,
                               is_set ? "= false" : "by default"));
      const Outcome run = train(config);
      if (config.stage == 0) first = run;
      else expect_equal_with_gradients(first, run);
      check(run);
    }
  }
}

}  // namespace

Outcome exact_run(Config config) {
  config.micro_batches = config.by_hand ? config.micro_batches * config.ranks : 1;
  config.ranks = 1;
  config.stage = -1;
  config.reduce_every = {};
  config.precision = Precision::fp64;
  config.loss_scale = {};
  config.gradient = true;
  config.recompute_every = 0;
  return train(config);
}

void expect_near(const Outcome& run, const Outcome& exact) {
  EXPECT_LT(distance(run.losses, exact.losses), 1e-12);
  EXPECT_LT(distance(run.norms, exact.norms), 1e-12);
  EXPECT_LT(distance(run.first_gradient, exact.first_gradient), 1e-12);
}

void expect_slope_of_loss(Config config) {
  // Weights of embeddings are about 0.02, so the truncation error is of order (h / 0.02)^2 = 2.5e-9, and the rounding error of
  // order eps loss / h = 1e-9.
  constexpr double kStep = 1e-6;
  config.precision = Precision::fp64;
  RankRun run({}, config);
  Trainer& trainer = run.trainer();
  const Batch batch = config.batch ? config.batch(0) : global_batch(0);
  const auto direction = [](const at::Tensor& values) {
    return (at::arange(values.numel(), at::kDouble) + 1).sin().view(values.sizes());
  };
  std::map<std::string, at::Tensor> values;
  for (const ParamInfo& param : trainer.state().model->params) values[param.name] = trainer.tensors().parameter(param.name);
  const auto loss_at = [&](double distance) {
    for (const auto& [name, value] : values) trainer.tensors().set_parameter(name, value + distance * direction(value));
    return trainer.evaluate(batch).loss;
  };
  const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
  loss_at(0);
  run.step();
  double along = 0;
  for (const auto& [name, value] : values) along += (trainer.tensors().gradient(name) * direction(value)).sum().item<double>();
  EXPECT_NEAR(along, slope, 1e-7 * (1 + std::fabs(slope)));
}

void expect_promises(Config config, const std::vector<Split>& splits) {
  config.gradient = true;
  for (const Split& split : splits) {
    config.ranks = split.ranks;
    config.micro_batches = split.micro_batches;
    const Outcome exact = exact_run(config);
    for (const char* reduce_every : {"step", "micro_batch"}) {
      config.reduce_every = reduce_every;
      if (split.micro_batches == 1 && config.reduce_every == "micro_batch") continue;  // the same programs
      for (const Precision& precision : {Precision::bf16, Precision::fp64}) {
        if (precision == Precision::bf16 && config.reduce_every == "micro_batch") continue;  // the random cases mix these, too
        config.precision = precision;
        expect_equal_stages(config, [&](const Outcome& run) {
          if (precision == Precision::fp64) expect_near(run, exact);
        });
      }
    }
  }
}

}  // namespace zt::test
