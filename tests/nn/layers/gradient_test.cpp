// Compares gradients with central differences in fp64, and tests that they reach the sinks.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "layers/layers.h"
#include "nn/support/run.h"
#include "zt/base/error.h"

namespace zt::nn {
namespace {

using Table = Value::Table;

// The error of the central differences of run.cpp is about h^2 |f'''| / 6 + eps |f| / h = 2e-11 (|f'''| + |f|). The values and
// third derivatives of the functions below are of order 100 at most.
constexpr double kTolerance = 1e-8;

at::Tensor input(at::IntArrayRef shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return (at::arange(numel, at::kDouble) * 0.7 + 0.3).sin().view(shape);
}

double error_of(const std::shared_ptr<Layer>& layer, const at::Tensor& x, test::FakeContext context = {}) {
  const test::Subject subject = test::subject(layer);
  test::initialise(subject, 5, at::kDouble);
  for (const auto& param : subject.params)
    test::values_of(*param).set_data(test::values_of(*param).data() +
                                     0.1);  // biases are initialised to 0; test them at other values
  return test::gradient_error(subject, {x}, context);
}

TEST(Gradient, Linear) {
  EXPECT_LT(error_of(make_linear(Table{{"in", 5}, {"out", 3}}), input({2, 3, 5})), kTolerance);
}
TEST(Gradient, LayerNorm) {
  EXPECT_LT(error_of(make_layernorm(Table{{"hidden", 7}}), input({2, 3, 7})), kTolerance);
}
TEST(Gradient, RmsNorm) {
  EXPECT_LT(error_of(make_rmsnorm(Table{{"hidden", 19}}), input({2, 3, 19})), kTolerance);
}

TEST(Gradient, Mlp) {
  for (const std::string activation : {"gelu", "gelu_tanh", "swiglu"}) {
    for (const int64_t tile : {0, 4}) {
      const Table options{{"hidden", 3}, {"ffn", 5}, {"activation", activation}, {"std", 0.5}, {"tile", tile}};
      EXPECT_LT(error_of(make_mlp(options), input({2, 3, 3})), kTolerance) << activation << ", tile " << tile;
    }
  }
}

TEST(Gradient, Attention) {
  EXPECT_LT(error_of(make_attention(Table{{"hidden", 6}, {"heads", 2}, {"std", 0.5}}), input({2, 4, 6})), kTolerance);
  const Table grouped{{"hidden", 5}, {"heads", 4}, {"kv_heads", 2}, {"head_dim", 2}, {"rotary", true}, {"std", 0.5}};
  EXPECT_LT(error_of(make_attention(grouped), input({2, 4, 5})), kTolerance);
  Table normed = grouped;
  normed.insert({{"qk_norm", true}, {"qk_norm_eps", 0.1}});
  EXPECT_LT(error_of(make_attention(normed), input({2, 4, 5})), kTolerance);
  Table scaled = grouped;
  scaled.insert({{"bias", false}, {"qkv_bias", true}, {"rope_scaling", Table{{"type", "linear"}, {"factor", 3}}}});
  EXPECT_LT(error_of(make_attention(scaled), input({2, 4, 5})), kTolerance);
}

TEST(Gradient, BlockWithDropout) {
  const Table options{{"hidden", 4}, {"heads", 2}, {"ffn", 5}, {"dropout", 0.3}, {"std", 0.5}, {"residual_std", 0.5}};
  EXPECT_LT(error_of(make_block(options), input({2, 3, 4})), kTolerance);
}

TEST(Gradient, Losses) {
  test::FakeContext context;
  context.fields["labels"] = at::tensor({0, -1, 4, 2, 2, -1}, at::kLong).view({2, 3});
  EXPECT_LT(error_of(make_cross_entropy(Table{{"ignore_index", -1}}), input({2, 3, 5}), context), kTolerance);
  const Table head{{"vocab", 5}, {"hidden", 3}, {"bias", true}, {"ignore_index", -1}, {"std", 0.5}};
  EXPECT_LT(error_of(make_lm_loss(head), input({2, 3, 3}), context), kTolerance);
  Table tiled = head;
  tiled["tile"] = 4;
  EXPECT_LT(error_of(make_lm_loss(tiled), input({2, 3, 3}), context), kTolerance);
}

// --- sinks ---

TEST(Sink, LaterGradientsAreAdded) {
  const test::Subject subject = test::subject(make_linear(Table{{"in", 3}, {"out", 2}}));
  test::initialise(subject, 1, at::kDouble);
  const at::Tensor x = input({4, 3}), cot = input({4, 2});
  test::FakeContext once, twice;
  const test::Result single = test::run(subject, {x}, once, cot);
  test::run(subject, {x}, twice, cot);
  const test::Result both = test::run(subject, {x}, twice, cot);
  // The second GEMM may begin with the content of the sink, or add its result to it. Each of the three GEMMs sums 4 products,
  // with roundings of 2^-53.
  const at::Tensor allowed = at::ldexp(26 * at::mm(cot.abs().t(), x.abs()), at::tensor(-53));
  EXPECT_TRUE((both.grads.at("weight") - 2 * single.grads.at("weight")).abs().le(allowed).all().item<bool>());
  EXPECT_GT(single.grads.at("weight").abs().min().item<double>(), 1e-3);
  EXPECT_TRUE(at::equal(both.grads.at("bias"), 2 * single.grads.at("bias")));
}

TEST(Sink, ATiedHeadAddsToTheEmbeddingsSink) {
  const auto model = make_gpt(Table{{"layers", 0}, {"hidden", 3}, {"heads", 1}, {"vocab", 5}, {"seq", 2}});
  const test::Subject subject = test::subject(model);
  test::initialise(subject, 1, at::kDouble);
  test::FakeContext context;
  context.fields["tokens"] = at::tensor({1, 4}, at::kLong).view({1, 2});
  context.fields["labels"] = at::tensor({4, 0}, at::kLong).view({1, 2});
  EXPECT_LT(test::gradient_error(subject, {}, context), kTolerance);
}

TEST(Sink, DeferredWeightGradientsWait) {
  const test::Subject subject = test::subject(make_block(Table{{"hidden", 4}, {"heads", 2}}));
  test::initialise(subject, 1, at::kDouble);
  const at::Tensor x = input({1, 3, 4}), cot = input({1, 3, 4});
  test::FakeContext at_once, waiting;
  const test::Result wanted = test::run(subject, {x}, at_once, cot);
  waiting.defers = true;
  const test::Result got = test::run(subject, {x}, waiting, cot);
  EXPECT_EQ(waiting.sunk.size(), 4U);      // the norms' gradients are computed with the gradients of their inputs
  EXPECT_EQ(waiting.deferred.size(), 4U);  // the four matmuls
  EXPECT_TRUE(at::equal(got.input_grads[0], wanted.input_grads[0]));
  for (const auto& work : waiting.deferred) work();
  for (const auto& [param, gradient] : waiting.sunk)
    EXPECT_TRUE(at::equal(gradient, wanted.grads.at(param->name))) << param->name;
  EXPECT_EQ(waiting.sunk.size(), 12U);
}

TEST(Sink, FrozenParametersGetNothing) {
  const auto layer = make_linear(Table{{"in", 3}, {"out", 2}});
  const test::Subject subject = test::subject(layer);
  subject.params[0]->trainable = false;
  test::initialise(subject, 1, at::kDouble);
  test::FakeContext context;
  const test::Result result = test::run(subject, {input({4, 3})}, context, input({4, 2}));
  EXPECT_FALSE(result.grads.contains("weight"));
  EXPECT_TRUE(result.grads.contains("bias"));
  EXPECT_TRUE(result.input_grads[0].defined());
}

TEST(Sink, IsUndefinedWhereTheContextKeepsNoGradients) {
  const test::Subject subject = test::subject(make_block(Table{{"hidden", 4}, {"heads", 2}}));
  test::initialise(subject, 1, at::kDouble);
  test::FakeContext context;
  context.keeps_gradients = false;
  const test::Result result = test::run(subject, {input({1, 3, 4})}, context, input({1, 3, 4}));
  EXPECT_TRUE(context.sunk.empty());
  EXPECT_TRUE(result.input_grads[0].defined());
}

// The result of a 16-bit GEMM may be rounded once to its dtype before it is added to the sink.
TEST(Sink, A16BitWeightGradientIsAddedToAnFp32Sink) {
  const test::Subject subject = test::subject(make_linear(Table{{"in", 3}, {"out", 2}}));
  struct WideContext : test::FakeContext {
    SinkFn grad_sink(const Param& param) override {
      return [this, &param]() -> Sink {
        const bool first = !sunk.contains(&param);
        if (first) sunk[&param] = at::full(param.shape, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
        return {sunk.at(&param), first};
      };
    }
  };
  for (const auto& [dtype, unit] : {std::pair(at::kBFloat16, 0x1p-8), std::pair(at::kHalf, 0x1p-11)}) {
    test::initialise(subject, 1, dtype);
    WideContext wide;
    const at::Tensor x = input({4, 3}).to(dtype), cot = input({4, 2}).to(dtype);
    test::run(subject, {x}, wide, cot);
    const test::Result got = test::run(subject, {x}, wide, cot);
    const at::Tensor exact = cot.to(at::kDouble);
    EXPECT_LE(test::distance(got.grads.at("weight"), 2 * exact.t().mm(x.to(at::kDouble))), unit);
    EXPECT_LE(test::distance(got.grads.at("bias"), 2 * exact.sum(0)), 8 * 0x1p-24);
  }
}

TEST(LmLoss, BackwardRunsOnce) {
  const test::Subject subject = test::subject(make_lm_loss(Table{{"vocab", 5}, {"hidden", 3}}));
  test::initialise(subject, 1, at::kDouble);
  test::FakeContext context;
  context.fields["labels"] = at::zeros({1, 2}, at::kLong);
  const at::Tensor x = input({1, 2, 3}).set_requires_grad(true);
  subject.forward({x}, context);
  const at::Tensor sum = context.losses.at(0).sum;
  torch::autograd::grad({sum}, {x}, {}, true);
  EXPECT_THROW(torch::autograd::grad({sum}, {x}, {}, true), Fault);
}

}  // namespace
}  // namespace zt::nn
