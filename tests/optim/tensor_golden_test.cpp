// Compares optimizers of whole tensors with PyTorch in float64; LAMB with the paper's formula.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "support/golden.h"
#include "support/message.h"
#include "tensor/adafactor.h"
#include "tensor/lamb.h"
#include "tensor/muon.h"

namespace zt::optim::test {
namespace {

ParamInfo param_of(const std::string& name, const at::Tensor& like) {
  ParamInfo param;
  param.name = name;
  param.shape = like.sizes().vec();
  param.room = like.numel();
  param.is_matrix = like.dim() > 1;
  return param;
}

// A tensor with the states that the optimizer asks for.
struct Owned {
  Owned(const Optimizer& optimizer, const ParamInfo& param, const at::Tensor& values)
      : tensor{param, optimizer.group_of(param), values.clone(), {}} {
    for (const StateInfo& info : optimizer.states_of(param)) tensor.state[info.name] = at::zeros(info.shape, values.options());
  }
  OwnedTensor tensor;
};

std::shared_ptr<Optimizer> made(const std::string& name) {
  using Table = Value::Table;
  if (name == "muon") return make_muon(Table{{"lr", 0.02}});
  if (name == "muon_plain") {
    return make_muon(Table{{"lr", 0.02},
                           {"nesterov", false},
                           {"momentum", 0.8},
                           {"weight_decay", 0.0},
                           {"ns_steps", 3},
                           {"adjust_lr", "match_rms_adamw"}});
  }
  if (name == "adafactor") return make_adafactor(Table{{"lr", 0.05}});
  return make_adafactor(Table{{"lr", 0.05},
                              {"beta2_decay", -0.5},
                              {"eps1", 1e-6},
                              {"eps2", 1e-2},
                              {"d", 1.5},
                              {"weight_decay", 0.1},
                              {"decay_all", true}});
}

class TensorGolden : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

// In float64 the order of sums is that of PyTorch up to the order within GEMMs and norms.
TEST_P(TensorGolden, EqualsPyTorch) {
  const auto& [shape, name] = GetParam();
  const auto golden = zt::test::golden("optim_tensors");
  const at::Tensor start = golden.at(shape + ".start"), grads = golden.at(shape + ".grads");
  const auto expected = golden.find(shape + "." + name);
  if (expected == golden.end()) GTEST_SKIP() << "torch.optim.Muon takes matrices only";
  const auto optimizer = made(name);
  const ParamInfo param = param_of("weight", start);
  Owned owned(*optimizer, param, start);
  for (int64_t step = 0; step < grads.size(0); ++step)
    optimizer->step_tensor(owned.tensor, grads[step].clone(), {.lr = optimizer->lr(), .step = step + 1});
  EXPECT_LT((owned.tensor.values - expected->second).abs().max().item<double>(), 1e-13);
  EXPECT_GT((start - expected->second).abs().max().item<double>(), 1e-2);
}
INSTANTIATE_TEST_SUITE_P(All, TensorGolden,
                         testing::Combine(testing::Values("wide", "tall", "vector"),
                                          testing::Values("muon", "muon_plain", "adafactor", "adafactor_decay")),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

// You et al. 2020, algorithm 2, with DeepSpeed's bounds of the ratio.
TEST(Lamb, FollowsThePaper) {
  const auto golden = zt::test::golden("optim_tensors");
  const at::Tensor start = golden.at("wide.start"), grads = golden.at("wide.grads");
  const double lr = 0.02, decay = 0.1, b1 = 0.9, b2 = 0.999;
  const auto optimizer = make_lamb(Value::Table{{"lr", lr}, {"weight_decay", decay}, {"max_coeff", 1.5}});
  const ParamInfo param = param_of("weight", start);
  Owned owned(*optimizer, param, start);
  at::Tensor p = start.clone(), m = at::zeros_like(p), v = at::zeros_like(p);
  int bounded = 0;
  for (int64_t step = 0; step < grads.size(0); ++step) {
    const at::Tensor g = grads[step];
    optimizer->step_tensor(owned.tensor, g.clone(), {.lr = lr, .step = step + 1});
    const auto t = static_cast<double>(step + 1);
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    const at::Tensor u = m / (1 - std::pow(b1, t)) / ((v / (1 - std::pow(b2, t))).sqrt() + 1e-8) + decay * p;
    const double ratio = p.norm().item<double>() / u.norm().item<double>();
    bounded += ratio > 1.5;
    p = p - lr * std::min(ratio, 1.5) * u;
  }
  EXPECT_LT((owned.tensor.values - p).abs().max().item<double>(), 1e-13);
  EXPECT_GT(bounded, 0);
  EXPECT_LT(bounded, grads.size(0));
}

// A tensor of zeros has no ratio: its step is that of Adam.
TEST(Lamb, MovesTensorsOfZeros) {
  const auto optimizer = make_lamb(Value::Table{{"lr", 0.1}});
  const at::Tensor zeros = at::zeros({2, 2}, at::kDouble);
  const ParamInfo param = param_of("weight", zeros);
  Owned owned(*optimizer, param, zeros);
  optimizer->step_tensor(owned.tensor, zeros + 2, {.lr = 0.1, .step = 1});
  EXPECT_NEAR(owned.tensor.values[0][0].item<double>(), -0.1, 1e-8);
}

TEST(Muon, ChoosesByNameAndShape) {
  const auto optimizer = make_muon(Value::Table{{"lr", 0.1}});
  const at::Tensor matrix = at::zeros({8, 4});
  EXPECT_EQ(optimizer->scope(param_of("blocks.0.mlp.up.weight", matrix)), Scope::tensor);
  EXPECT_EQ(optimizer->scope(param_of("embedding.weight", matrix)), Scope::element);
  EXPECT_EQ(optimizer->scope(param_of("blocks.0.norm.weight", at::zeros({8}))), Scope::element);
  const auto other = make_muon(Value::Table{{"lr", 0.1}, {"adamw", Value::Table{{"match", "up"}}}});
  EXPECT_EQ(other->scope(param_of("blocks.0.mlp.up.weight", matrix)), Scope::element);
  EXPECT_EQ(other->scope(param_of("embedding.weight", matrix)), Scope::tensor);
}

TEST(Muon, RefusesWrongOptions) {
  const auto refused = [](Value::Table options) {
    options["lr"] = 0.1;
    return zt::test::message_of<Misuse>([&] { make_muon(options); });
  };
  EXPECT_CONTAINS(refused({{"ns_coefficients", Value::List{1.0}}}), "optim.muon.ns_coefficients must be three numbers");
  EXPECT_CONTAINS(refused({{"ns_dtype", "bf17"}}), "optim.muon.ns_dtype");
  EXPECT_CONTAINS(refused({{"adamw", Value::Table{{"beta", 1}}}}), "optim.muon.adamw");
  EXPECT_CONTAINS(zt::test::message_of<Misuse>([] {
                    make_lamb(Value::Table{{"lr", 0.1}, {"min_coeff", 20.0}});
                  }),
                  "min_coeff (20) is above max_coeff (10)");
}

}  // namespace
}  // namespace zt::optim::test
