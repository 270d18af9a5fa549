// Compares grouped_mlp with one nn.mlp per group on the same rows, and tests its gradients and shapes.
#include "layers/grouped_mlp.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <numeric>

#include "grouped_mlp_options.h"
#include "layers/layers.h"
#include "nn/cpu/narrow.h"
#include "zt/gemm/flop_watch.h"

namespace zt::nn {
namespace {

using Table = Value::Table;
using test::longs;
using test::misuse_of;

at::Tensor random(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype = at::kDouble) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble).to(dtype);
}

// Returns the layer as a function of the rows alone.
test::Subject with_groups(const std::shared_ptr<Layer>& layer, const at::Tensor& group_rows) {
  return {[=](at::TensorList in, Context& context) { return layer->forward({in[0], group_rows}, context); }, layer->params()};
}

// Gives all parameters random values, also the biases.
void randomise(const test::Subject& subject, at::ScalarType dtype) {
  uint64_t seed = 100;
  for (const auto& param : subject.params) {
    const at::Tensor values = random(param->shape, ++seed) * 0.3;
    test::values_of(*param) = values.to(dtype).set_requires_grad(param->trainable);
  }
}

// Returns the results of one nn.mlp per group, joined as grouped_mlp does.
test::Result separate(const test::Subject& grouped, Table options, const std::vector<int64_t>& counts, const at::Tensor& rows,
                      const at::Tensor& cot) {
  options.erase("groups");
  std::vector<at::Tensor> outs, dxs;
  std::map<std::string, std::vector<at::Tensor>> grads;
  int64_t first = 0;
  for (size_t g = 0; g < counts.size(); ++g) {
    const test::Subject mlp = test::subject(make_mlp(options));
    test::Tensors values;
    for (const auto& param : grouped.params)
      values[param->name] = test::values_of(*param).detach()[static_cast<int64_t>(g)].clone();
    test::set_values(mlp, values, rows.scalar_type());
    test::FakeContext context;
    const auto of = [&](const at::Tensor& x) { return x.narrow(0, first, counts[g]).clone(); };
    const test::Result result = test::run(mlp, {of(rows)}, context, of(cot));
    outs.push_back(result.out.detach());
    dxs.push_back(result.input_grads[0]);
    for (const auto& [name, gradient] : result.grads) grads[name].push_back(gradient);
    first += counts[g];
  }
  test::Result all{at::cat(outs), {}, {}, {at::cat(dxs)}};
  for (const auto& [name, each] : grads) all.grads[name] = at::stack(each);
  return all;
}

void expect_equal(const test::Result& got, const test::Result& wanted, const std::string& about) {
  EXPECT_TRUE(at::equal(got.out, wanted.out)) << about;
  EXPECT_TRUE(at::equal(got.input_grads[0], wanted.input_grads[0])) << about;
  EXPECT_EQ(got.grads.size(), wanted.grads.size()) << about;
  for (const auto& [name, gradient] : wanted.grads) EXPECT_TRUE(at::equal(got.grads.at(name), gradient)) << about << ", " << name;
}

TEST(GroupedMlp, HasTheBitsOfSeparateMlps) {
  const std::vector<std::vector<int64_t>> divisions{{5, 1, 70, 9}, {0, 33, 0, 4}, {1, 0, 0, 0}, {0, 0, 0, 0}};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::string activation : {"gelu", "gelu_tanh", "relu", "swiglu"}) {
      for (const bool bias : {true, false}) {
        for (const auto& counts : divisions) {
          const Table options = options_of(4, activation, bias);
          const test::Subject subject = with_groups(make_grouped_mlp(options), longs(counts, {4}));
          randomise(subject, dtype);
          const int64_t n = std::accumulate(counts.begin(), counts.end(), int64_t{0});
          const at::Tensor rows = random({n, kHidden}, 1, dtype), cot = random({n, kHidden}, 2, dtype);
          test::FakeContext context;
          const test::Result got = test::run(subject, {rows}, context, cot);
          const std::string about = fmt::format("{} {} {} {}", c10::toString(dtype), activation, bias, n);
          expect_equal(got, separate(subject, options, counts, rows, cot), about);
        }
      }
    }
  }
}

TEST(GroupedMlp, GroupedGemmSaysWhatItCannot) {
  Table options = options_of(2);
  options.insert_or_assign("grouped_gemm", true);
  EXPECT_EQ(misuse_of([&] { make_grouped_mlp(options); }),
            "nn.grouped_mlp: grouped_gemm adds no biases: set bias = false, or leave grouped_gemm out");
  options.insert_or_assign("bias", false);
  const test::Subject subject = with_groups(make_grouped_mlp(options), longs({2, 3}, {2}));
  randomise(subject, at::kDouble);
  test::FakeContext context;
  EXPECT_EQ(misuse_of([&] {
              test::run(subject, {random({5, kHidden}, 1)}, context, {});
            }),
            "nn.grouped_mlp: grouped_gemm takes float32, bfloat16 or float16, got float64[5, 32] on cpu: leave grouped_gemm out");
}

// Each group has rows in only one of two micro-batches, in another order of first uses for each group.
TEST(GroupedMlp, AddsLaterMicroBatches) {
  const auto layer = make_grouped_mlp(options_of(3));
  const at::Tensor rows = random({6, kHidden}, 1), cot = random({6, kHidden}, 2);
  const auto run = [&](test::FakeContext& context, const std::vector<int64_t>& counts) {
    const test::Subject subject = with_groups(layer, longs(counts, {3}));
    randomise(subject, at::kDouble);
    return test::run(subject, {rows}, context, cot).grads;
  };
  test::FakeContext both, first, second;
  run(both, {6, 0, 0});
  const test::Tensors sum = run(both, {0, 2, 4}), one = run(first, {6, 0, 0}), two = run(second, {0, 2, 4});
  for (const auto& [name, gradient] : sum) EXPECT_LE(test::distance(gradient, one.at(name) + two.at(name)), 1e-15) << name;
}

TEST(GroupedMlp, Gradient) {
  const Table options{{"groups", 3}, {"hidden", 3}, {"ffn", 4}, {"activation", "swiglu"}, {"bias", true}};
  const test::Subject subject = with_groups(make_grouped_mlp(options), longs({2, 0, 3}, {3}));
  randomise(subject, at::kDouble);
  test::FakeContext context;
  EXPECT_LT(test::gradient_error(subject, {random({5, 3}, 1)}, context), 1e-8);  // see gradient_test.cpp
}

TEST(GroupedMlp, ConvertsRowsOfAnotherDtype) {
  const test::Subject subject = with_groups(make_grouped_mlp(options_of(2)), longs({2, 3}, {2}));
  randomise(subject, at::kBFloat16);
  test::FakeContext context, same;
  const at::Tensor rows = random({5, kHidden}, 1, at::kFloat), cot = random({5, kHidden}, 2, at::kBFloat16);
  const test::Result got = test::run(subject, {rows}, context, cot),
                     wanted = test::run(subject, {rows.to(at::kBFloat16)}, same, cot);
  EXPECT_TRUE(at::equal(got.out, wanted.out));
  EXPECT_TRUE(at::equal(got.input_grads[0], wanted.input_grads[0].to(at::kFloat)));
}

// Compares a layer with one of the same parameters that computes in float64, with one GEMM per group. The path through forward
// and backward has as many roundings as that of nn.mlp; see narrow_layers_test.cpp.
void expect_as_accurate_as_roundings(Table options, const std::vector<int64_t>& counts, at::ScalarType dtype) {
  const at::Tensor group_rows = longs(counts, {static_cast<int64_t>(counts.size())});
  const test::Subject subject = with_groups(make_grouped_mlp(options), group_rows);
  options.erase("grouped_gemm");
  const test::Subject wide_subject = with_groups(make_grouped_mlp(options), group_rows);
  randomise(subject, dtype);
  for (size_t i = 0; i < subject.params.size(); ++i)
    test::values_of(*wide_subject.params[i]) =
        test::values_of(*subject.params[i]).detach().to(at::kDouble).set_requires_grad(true);
  const int64_t n = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const at::Tensor rows = random({n, kHidden}, 1, dtype), cot = random({n, kHidden}, 2, dtype);
  test::SinkContext narrow(at::kFloat), wide(at::kDouble);
  const test::Result got = test::run(subject, {rows}, narrow, cot),
                     exact = test::run(wide_subject, {rows.to(at::kDouble)}, wide, cot.to(at::kDouble));
  const double bound = 6 * test::unit_of(dtype);
  const std::string about = fmt::format("{} {}", c10::toString(dtype), n);
  EXPECT_EQ(got.out.scalar_type(), dtype) << about;
  EXPECT_LE(test::distance(got.out, exact.out), bound) << about;
  EXPECT_LE(test::distance(got.input_grads[0], exact.input_grads[0]), bound) << about;
  for (const auto& [name, gradient] : exact.grads) {
    EXPECT_EQ(got.grads.at(name).scalar_type(), at::kFloat) << about;
    EXPECT_LE(test::distance(got.grads.at(name), gradient), bound) << about << ", " << name;
  }
}

TEST(GroupedMlp, In16BitsIsAsAccurateAsItsRoundings) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) expect_as_accurate_as_roundings(options_of(3), {7, 1, 12}, dtype);
}

TEST(GroupedMlp, GroupedGemmIsAsAccurateAsItsRoundings) {
  Table options = options_of(4, "swiglu", false);
  options.insert_or_assign("grouped_gemm", true);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::vector<int64_t>& counts : {std::vector<int64_t>{5, 0, 70, 9}, {0, 33, 0, 0}, {0, 0, 0, 0}})
      expect_as_accurate_as_roundings(options, counts, dtype);
  }
}

// --- sinks ---

TEST(GroupedMlp, DefersItsWeightGradients) {
  const auto layer = make_grouped_mlp(options_of(3));
  const test::Subject subject = with_groups(layer, longs({2, 0, 3}, {3}));
  randomise(subject, at::kDouble);
  const at::Tensor rows = random({5, kHidden}, 1), cot = random({5, kHidden}, 2);
  test::FakeContext at_once, waiting;
  const test::Result wanted = test::run(subject, {rows}, at_once, cot);
  waiting.defers = true;
  const test::Result got = test::run(subject, {rows}, waiting, cot);
  EXPECT_TRUE(waiting.sunk.empty());
  EXPECT_EQ(waiting.deferred.size(), 2U);
  EXPECT_TRUE(at::equal(got.input_grads[0], wanted.input_grads[0]));
  for (const auto& work : waiting.deferred) work();
  EXPECT_EQ(waiting.sunk.size(), 4U);
  for (const auto& [param, gradient] : waiting.sunk) EXPECT_TRUE(at::equal(gradient, wanted.grads.at(param->name)));
}

TEST(GroupedMlp, LeavesFrozenParametersAlone) {
  const test::Subject subject = with_groups(make_grouped_mlp(options_of(2)), longs({2, 3}, {2}));
  subject.params[0]->trainable = false;
  randomise(subject, at::kDouble);
  const at::Tensor rows = random({5, kHidden}, 1), cot = random({5, kHidden}, 2);
  test::FakeContext context, keeps_none;
  const test::Result result = test::run(subject, {rows}, context, cot);
  EXPECT_FALSE(result.grads.contains("up.weight"));
  EXPECT_EQ(result.grads.size(), 3U);
  keeps_none.keeps_gradients = false;
  EXPECT_TRUE(test::run(subject, {rows}, keeps_none, cot).input_grads[0].defined());
  EXPECT_TRUE(keeps_none.sunk.empty());
}

// --- meta ---

TEST(GroupedMlp, NeedsNoValuesOnMeta) {
  const auto layer = make_grouped_mlp(options_of(3));
  const at::TensorOptions meta(at::kMeta);
  const test::Subject subject = with_groups(layer, at::empty({3}, meta.dtype(at::kLong)));
  for (const auto& param : subject.params) test::values_of(*param) = at::empty(param->shape, meta).set_requires_grad(true);
  test::FakeContext context;
  const at::Tensor rows = at::empty({10, kHidden}, meta);
  FlopWatch watch;
  const test::Result result = test::run(subject, {rows}, context, rows);
  // Forward, input gradient and weight gradient have 2 n hidden (2 ffn) operations in `up` and 2 n ffn hidden in `down`.
  EXPECT_EQ(watch.take(), 3 * 2 * 10.0 * kHidden * (3 * kFfn));
  EXPECT_EQ(result.out.sizes(), rows.sizes());
  EXPECT_EQ(result.input_grads[0].sizes(), rows.sizes());
  EXPECT_EQ(result.grads.size(), 4U);
  EXPECT_EQ(result.grads.at("up.weight").sizes(), (at::IntArrayRef{3, 2 * kFfn, kHidden}));
}
}  // namespace
}  // namespace zt::nn
