// Tests all optimizers: segments, groups, scaling, equal bits on all instruction sets, and errors.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "support.h"

namespace zt::optim::test {
namespace {

constexpr int64_t kCount = 1037;

// Runs three updates of the segments.
void run(const Optimizer& optimizer, FlatState& shard, const std::vector<Segment>& segments, double grad_scale = 1) {
  for (int step = 1; step <= 3; ++step) {
    const at::Tensor grad = numbers(shard.master.numel(), 100 + step, shard.master.scalar_type());
    optimizer.step(shard, grad, segments, {.lr = optimizer.lr(), .grad_scale = grad_scale, .step = step});
  }
}

void expect_equal(const FlatState& a, const FlatState& b, const std::string& what) {
  EXPECT_TRUE(at::equal(a.master, b.master)) << what;
  for (const auto& [name, tensor] : a.state) EXPECT_TRUE(at::equal(tensor, b.state.at(name))) << what << " " << name;
}

class EveryOptimizer : public testing::TestWithParam<std::tuple<std::string, at::ScalarType>> {
 protected:
  Kind kind() const { return kinds().at(std::get<0>(GetParam())); }
  at::ScalarType dtype() const { return std::get<1>(GetParam()); }
  std::shared_ptr<Optimizer> make(Isa isa = best_isa()) const { return kind().make(kind().options, isa); }
};

INSTANTIATE_TEST_SUITE_P(All, EveryOptimizer,
                         testing::Combine(testing::Values("adamw", "adam", "sgd", "sgd momentum", "sgd nesterov", "lion"),
                                          testing::Values(at::kFloat, at::kDouble)),
                         [](const auto& info) {
                           std::string name =
                               std::get<0>(info.param) + (std::get<1>(info.param) == at::kFloat ? "_float32" : "_float64");
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST_P(EveryOptimizer, AllInstructionSetsGiveEqualBits) {
  for (const int64_t count : {1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 1037}) {
    const auto plain = make(Isa::plain);
    FlatState expected = shard_of(*plain, numbers(count, 1, dtype()));
    run(*plain, expected, whole(expected));
    for (const Isa isa : supported_isas()) {
      const auto optimizer = make(isa);
      FlatState shard = shard_of(*optimizer, numbers(count, 1, dtype()));
      run(*optimizer, shard, whole(shard));
      expect_equal(shard, expected, fmt::format("{} elements, {}", count, isa_name(isa)));
    }
  }
}

TEST_P(EveryOptimizer, AnySegmentsGiveEqualBits) {
  const auto optimizer = make();
  FlatState expected = shard_of(*optimizer, numbers(kCount, 1, dtype()));
  run(*optimizer, expected, whole(expected));
  EXPECT_FALSE(at::equal(expected.master, numbers(kCount, 1, dtype())));
  FlatState shard = shard_of(*optimizer, numbers(kCount, 1, dtype()));
  run(*optimizer, shard, {{0, 0, 0, 1}, {1, 0, 1, 1}, {2, 0, 1, 30}, {3, 0, 30, 513}, {4, 0, 513, 1000}, {5, 0, 1000, kCount}});
  expect_equal(shard, expected, "segments");
}

TEST_P(EveryOptimizer, GapsAreLeftAlone) {
  const auto optimizer = make();
  const at::Tensor start = numbers(kCount, 1, dtype());
  FlatState all = shard_of(*optimizer, start), shard = shard_of(*optimizer, start);
  run(*optimizer, all, whole(all));
  run(*optimizer, shard, {{0, 0, 3, 68}, {2, 0, 101, 101}, {3, 0, 333, 1030}});
  const auto merge = [](const at::Tensor& untouched, const at::Tensor& updated) {
    at::Tensor out = untouched.clone();
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{3, 68}, {333, 1030}}) {
      out.slice(0, begin, end).copy_(updated.slice(0, begin, end));
    }
    return out;
  };
  EXPECT_TRUE(at::equal(shard.master, merge(start, all.master)));
  for (const auto& [name, tensor] : shard.state)
    EXPECT_TRUE(at::equal(tensor, merge(at::zeros_like(start), all.state.at(name)))) << name;
}

TEST_P(EveryOptimizer, EmptyShardsAndSegments) {
  const auto optimizer = make();
  FlatState empty = shard_of(*optimizer, numbers(0, 1, dtype()));
  run(*optimizer, empty, {});
  run(*optimizer, empty, {{0, 0, 0, 0}});
  FlatState shard = shard_of(*optimizer, numbers(5, 1, dtype()));
  run(*optimizer, shard, {});
  EXPECT_TRUE(at::equal(shard.master, numbers(5, 1, dtype())));
}

TEST_P(EveryOptimizer, GradScaleMultipliesTheGradientFirst) {
  const auto optimizer = make();
  FlatState scaled = shard_of(*optimizer, numbers(kCount, 1, dtype())),
            expected = shard_of(*optimizer, numbers(kCount, 1, dtype()));
  const double scale = 1.0 / 3;  // not exact in float32, so it is rounded to the gradient's dtype
  for (int step = 1; step <= 3; ++step) {
    const at::Tensor grad = numbers(kCount, 100 + step, dtype());
    optimizer->step(scaled, grad, whole(scaled), {.lr = optimizer->lr(), .grad_scale = scale, .step = step});
    const at::Tensor by_hand = grad * at::scalar_tensor(scale, grad.options());
    optimizer->step(expected, by_hand, whole(expected), {.lr = optimizer->lr(), .step = step});
  }
  expect_equal(scaled, expected, "scaled");
}

TEST_P(EveryOptimizer, GroupsScaleRateAndDecay) {
  Value::Table options = kind().options;
  options["groups"] = Value::List{Value::Table{{"match", "slow"}, {"lr_scale", 0.25}, {"weight_decay", 0.5}}};
  const auto grouped = kind().make(options, best_isa());
  const int slow = grouped->group_of(param_named("slow.weight"));
  options = kind().options;
  options["weight_decay"] = 0.5;
  const auto alone = kind().make(options, best_isa());
  FlatState shard = shard_of(*grouped, numbers(100, 1, dtype())), expected = shard_of(*alone, numbers(100, 1, dtype()));
  const at::Tensor grad = numbers(100, 2, dtype());
  grouped->step(shard, grad, std::vector<Segment>{{0, slow, 0, 100}}, {.lr = 0.01});
  alone->step(expected, grad, std::vector<Segment>{{0, 0, 0, 100}}, {.lr = 0.01 * 0.25});
  expect_equal(shard, expected, "group");
}

TEST_P(EveryOptimizer, ErrorsNameWhatIsWrong) {
  const auto optimizer = make();
  FlatState shard = shard_of(*optimizer, numbers(10, 1, dtype()));
  const at::Tensor grad = numbers(10, 2, dtype()), before = shard.master.clone();
  const auto step = [&](FlatState& state, const at::Tensor& gradient, std::vector<Segment> segments, Scalars scalars) {
    return complaint([&] { optimizer->step(state, gradient, segments, scalars); });
  };
  const Scalars ok{.lr = 0.1};
  EXPECT_NE(step(shard, grad, {{7, 0, 5, 11}}, ok).find("segment [5, 11) of parameter 7"), std::string::npos);
  EXPECT_NE(step(shard, grad, {{0, 0, 0, 5}, {1, 0, 4, 6}}, ok).find("segment [4, 6)"), std::string::npos);
  EXPECT_NE(step(shard, grad, {{0, 0, -1, 5}}, ok).find("[-1, 5)"), std::string::npos);
  EXPECT_NE(step(shard, grad, {{0, 2, 0, 5}}, ok).find("no parameter group 2"), std::string::npos);
  EXPECT_NE(step(shard, grad, {{0, -1, 0, 5}}, ok).find("no parameter group -1"), std::string::npos);
  EXPECT_NE(step(shard, grad.slice(0, 0, 9), whole(shard), ok).find("the gradient must be"), std::string::npos);
  EXPECT_NE(step(shard, grad.to(at::kInt), whole(shard), ok).find("int32[10]"), std::string::npos);
  EXPECT_NE(step(shard, at::Tensor(), whole(shard), ok).find("undefined"), std::string::npos);
  EXPECT_NE(step(shard, grad, whole(shard), {.lr = 0.1, .step = 0}).find("counts updates from 1"), std::string::npos);
  EXPECT_NE(step(shard, grad, whole(shard), {.lr = std::nan("")}).find("finite"), std::string::npos);
  EXPECT_NE(step(shard, grad, whole(shard), {.lr = 0.1, .grad_scale = HUGE_VAL}).find("finite"), std::string::npos);
  FlatState half{shard.master.to(at::kHalf), {}}, bare{shard.master, {}};
  EXPECT_NE(step(half, grad, whole(half), ok).find("float32 or float64"), std::string::npos);
  if (!optimizer->state_names().empty()) {
    EXPECT_NE(step(bare, grad, whole(bare), ok).find("no state '" + optimizer->state_names()[0]), std::string::npos);
  }
  EXPECT_TRUE(at::equal(shard.master, before));  // nothing was changed
}

}  // namespace
}  // namespace zt::optim::test
