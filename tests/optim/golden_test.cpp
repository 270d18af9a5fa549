// Compares 50 updates with PyTorch in float64; for Lion, with the paper's formula.
#include "support/golden.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "support.h"

namespace zt::optim::test {
namespace {

struct Case {
  Make make;
  Value::Table options;
};

// The same cases as in tests/oracle/make_optim.py.
const std::map<std::string, Case>& cases() {
  static const std::map<std::string, Case> list{
      {"adamw", {make_adamw, {{"lr", 1e-2}, {"weight_decay", 0.1}}}},
      {"adamw_betas", {make_adamw, {{"lr", 3e-3}, {"weight_decay", 0.5}, {"betas", Value::List{0.8, 0.95}}, {"eps", 1e-3}}}},
      {"adam", {make_adam, {{"lr", 1e-2}}}},
      {"adam_l2", {make_adam, {{"lr", 1e-2}, {"weight_decay", 0.1}}}},
      {"sgd", {make_sgd, {{"lr", 0.05}, {"weight_decay", 0.1}}}},
      {"sgd_momentum", {make_sgd, {{"lr", 0.05}, {"momentum", 0.9}, {"weight_decay", 0.1}}}},
      {"sgd_dampening", {make_sgd, {{"lr", 0.05}, {"momentum", 0.9}, {"dampening", 0.5}}}},
      {"sgd_nesterov", {make_sgd, {{"lr", 0.05}, {"momentum", 0.8}, {"nesterov", true}, {"weight_decay", 0.1}}}},
      {"adagrad", {make_adagrad, {{"lr", 0.05}, {"weight_decay", 0.1}}}},
      {"adagrad_start", {make_adagrad, {{"lr", 0.05}, {"lr_decay", 0.1}, {"initial_accumulator_value", 0.2}, {"eps", 1e-3}}}},
  };
  return list;
}

// Unit roundoff: the relative error of one rounding.
double roundoff(at::ScalarType dtype) {
  return dtype == at::kFloat ? 0x1p-24 : 0x1p-53;
}

// Returns how far each element may be from exact arithmetic after `steps` updates. Terms linear in the unit roundoff u:
// * The parameter and the decay (a few operations on the parameter) are rounded: 8 u |p| per step.
// * Adam's averages collect at most 4 roundings per step relative to the largest gradient so far, so 4 t u after t steps. The
//   largest gradient is at most 1 / sqrt(1 - beta2) <= 32 times the denominator. So the error of an update is lr * 32 * 4 t u.
// * SGD's buffer collects 4 roundings per step relative to its size, which is at most G / (1 - momentum). An error in the buffer
//   acts for 1 / (1 - momentum) steps. Momentum is at most 0.9 here. G includes the decay term.
at::Tensor bound(const std::string& name, const Optimizer& optimizer, const at::Tensor& grads, const at::Tensor& largest,
                 double u) {
  const auto steps = static_cast<double>(grads.size(0));
  const at::Tensor rounding = largest * (8 * steps * u);
  // * Adagrad's sum collects 3 roundings per step; the gradient is at most its root, so the error of an update is lr * 3 t u.
  if (name.starts_with("adagrad")) return rounding + optimizer.lr() * 8 * steps * steps * u;
  if (name.starts_with("adam")) return rounding + optimizer.lr() * 32 * 4 * steps * steps * u;
  const at::Tensor gradient = grads.abs().amax(0) + 0.1 * largest;
  return rounding + gradient * (optimizer.lr() * 4 * 100 * steps * u);
}

class Golden : public testing::TestWithParam<std::tuple<std::string, at::ScalarType>> {};

TEST_P(Golden, FiftySteps) {
  const auto& [name, dtype] = GetParam();
  const auto golden = zt::test::golden("optim_steps");
  const at::Tensor grads = golden.at("grads"), kept = golden.at("kept"), expected = golden.at(name);
  const auto optimizer = cases().at(name).make(cases().at(name).options, best_isa());
  const at::Tensor start = golden.at("start");
  const at::Tensor largest = at::cat({start.unsqueeze(0), expected}).abs().amax(0) + optimizer->lr();
  FlatState shard = shard_of(*optimizer, start.to(dtype));
  int64_t next = 0;
  for (int64_t step = 0; step < grads.size(0); ++step) {
    optimizer->step(shard, grads[step].to(dtype), whole(shard), {.lr = optimizer->lr(), .step = step + 1});
    if (kept[next].item<int64_t>() != step + 1) continue;
    const at::Tensor error = (shard.master.to(at::kDouble) - expected[next]).abs();
    const at::Tensor limit = bound(name, *optimizer, grads.slice(0, 0, step + 1), largest, roundoff(dtype));
    EXPECT_TRUE((error <= limit).all().item<bool>())
        << "after " << step + 1 << ": " << (error / limit).max().item<double>() << " bounds";
    // The bound is far below the change of the parameters, so a wrong update fails the test.
    EXPECT_LT(limit.max().item<double>(), 1e-2 * (expected[next] - start).abs().max().item<double>());
    ++next;
  }
  EXPECT_EQ(next, kept.numel());
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& [name, unused] : cases()) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, Golden, testing::Combine(testing::ValuesIn(case_names()), testing::Values(at::kDouble, at::kFloat)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + (std::get<1>(info.param) == at::kFloat ? "_float32" : "_float64");
                         });

// Chen et al. 2023, algorithm 2, in float64.
struct LionFormula {
  double lr = 1e-2, beta1 = 0.9, beta2 = 0.99, decay = 0.1;

  // Returns the new parameter and momentum.
  std::pair<at::Tensor, at::Tensor> operator()(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m) const {
    const at::Tensor update = (beta1 * m + (1 - beta1) * g).sign();
    return {p - lr * (update + decay * p), beta2 * m + (1 - beta2) * g};
  }
};

TEST(Lion, FiftyStepsInDoubleFollowThePaper) {
  const auto golden = zt::test::golden("optim_steps");
  const at::Tensor grads = golden.at("grads");
  const LionFormula formula;
  const auto optimizer = make_lion(Value::Table{{"lr", formula.lr}, {"weight_decay", formula.decay}});
  FlatState shard = shard_of(*optimizer, golden.at("start"));
  at::Tensor p = golden.at("start"), m = at::zeros_like(p);
  for (int64_t step = 0; step < grads.size(0); ++step) {
    optimizer->step(shard, grads[step], whole(shard), {.lr = formula.lr, .step = step + 1});
    std::tie(p, m) = formula(p, grads[step], m);
  }
  // The signs are equal, because gradients are random and no average is as close to zero as its rounding error. So only p
  // differs.
  const at::Tensor limit = (p.abs() + golden.at("start").abs() + formula.lr) * (8 * 50 * 0x1p-53);
  EXPECT_TRUE(((shard.master - p).abs() <= limit).all().item<bool>());
}

TEST(Lion, EachFloatStepFollowsThePaper) {
  const auto golden = zt::test::golden("optim_steps");
  const at::Tensor grads = golden.at("grads");
  const LionFormula formula;
  const auto optimizer = make_lion(Value::Table{{"lr", formula.lr}, {"weight_decay", formula.decay}});
  FlatState shard = shard_of(*optimizer, golden.at("start").to(at::kFloat));
  for (int64_t step = 0; step < grads.size(0); ++step) {
    const at::Tensor before = shard.master.to(at::kDouble), average = shard.state.at("exp_avg").to(at::kDouble);
    const auto [p, m] = formula(before, grads[step], average);
    optimizer->step(shard, grads[step].to(at::kFloat), whole(shard), {.lr = formula.lr, .step = step + 1});
    // There are four operations on p and the step, and three on the average. If the average is below the error of these three,
    // its sign is not determined.
    const double u = 0x1p-24;
    const at::Tensor terms = average.abs() + grads[step].abs();
    const at::Tensor sign_is_open = ((0.9 * average + 0.1 * grads[step]).abs() <= 4 * u * terms).to(at::kDouble);
    const at::Tensor limit = 4 * u * (before.abs() + formula.lr) + 2 * formula.lr * sign_is_open;
    EXPECT_TRUE(((shard.master.to(at::kDouble) - p).abs() <= limit).all().item<bool>()) << "step " << step;
    EXPECT_TRUE(((shard.state.at("exp_avg").to(at::kDouble) - m).abs() <= 4 * u * terms).all().item<bool>()) << "step " << step;
    // Undetermined signs are rare. The element without gradients has a zero average, whose sign is zero in both.
    EXPECT_LE(sign_is_open.sum().item<double>(), 2);
  }
}

TEST(Lion, ZeroStaysZeroAndNanStaysNan) {
  const auto optimizer = make_lion(Value::Table{{"lr", 0.5}});
  FlatState shard = shard_of(*optimizer, at::ones({3}));
  const at::Tensor grad = at::zeros({3});
  grad[1] = std::numeric_limits<float>::quiet_NaN();
  grad[2] = -2;
  optimizer->step(shard, grad, whole(shard), {.lr = 0.5});
  EXPECT_EQ(shard.master[0].item<float>(), 1);
  EXPECT_TRUE(std::isnan(shard.master[1].item<float>()));
  EXPECT_EQ(shard.master[2].item<float>(), 1.5);
}

}  // namespace
}  // namespace zt::optim::test
