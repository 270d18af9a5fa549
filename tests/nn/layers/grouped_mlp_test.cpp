// Compares grouped_mlp with one nn.mlp per group on the same rows, and tests its gradients, shapes, placements and errors.
#include "layers/grouped_mlp.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <numeric>

#include "layers/layers.h"
#include "nn/cpu/narrow.h"
#include "zt/gemm/flop_watch.h"

namespace zt::nn {
namespace {

using Table = Value::Table;
using test::longs;
using test::misuse_of;

// Widths are multiples of 64 bytes in all dtypes, so the rows of each group are aligned like those of a separate tensor. A
// library for GEMMs may choose another order of sums for unaligned memory.
constexpr int64_t kHidden = 32, kFfn = 64;

at::Tensor random(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype = at::kDouble) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble).to(dtype);
}

Table options_of(int64_t groups, const std::string& activation = "swiglu", bool bias = true) {
  return {{"groups", groups}, {"hidden", kHidden}, {"ffn", kFfn},        {"activation", activation},
          {"bias", bias},     {"std", 0.3},        {"residual_std", 0.3}};
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

// --- parameters ---

TEST(GroupedMlp, ARankHoldsABoxOfTheGroups) {
  Table options = options_of(6, "gelu_tanh");
  for (const auto& param : make_grouped_mlp(options)->params()) EXPECT_TRUE(param->placements.empty());
  options["axis"] = "ep";
  options["parts"] = 2;
  const auto params = make_grouped_mlp(options)->params();
  ASSERT_EQ(params.size(), 4U);
  const std::vector<std::pair<std::string, std::vector<int64_t>>> wanted{{"up.weight", {6, kFfn, kHidden}},
                                                                         {"up.bias", {6, kFfn}},
                                                                         {"down.weight", {6, kHidden, kFfn}},
                                                                         {"down.bias", {6, kHidden}}};
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_EQ(params[i]->name, wanted[i].first);
    EXPECT_EQ(params[i]->shape, wanted[i].second);
    EXPECT_EQ(params[i]->is_matrix, params[i]->name.ends_with("weight"));
    EXPECT_EQ(params[i]->placements, (std::vector<AxisPlacement>{{"ep", Placement::sharded, 0, 2}}));
  }
  options["parts"] = 1;
  EXPECT_EQ(make_grouped_mlp(options)->params()[0]->placements, (std::vector<AxisPlacement>{{"ep", Placement::sharded, 0, 1}}));
}

// `axis` cuts the MLPs, and `tensor` the columns inside each: for swiglu those of the gate and of `up`, each by itself.
TEST(GroupedMlp, ARankHoldsColumnsOfItsGroups) {
  const auto tp = std::make_shared<Axis>();
  tp->name = "tp";
  tp->names = {"tp"};
  tp->size = 3;
  Table options = options_of(6);
  options["ffn"] = 7;
  options["axis"] = "ep";
  options["parts"] = 2;
  options["tensor"] = Object::of<Axis>(tp);
  const auto layer = make_grouped_mlp(options);
  EXPECT_EQ(layer->axes(), std::vector<std::string>{"tp"});
  const auto params = layer->params();
  const MeshShape mesh({{"ep", 2}, {"tp", 3}}, 6);
  const std::vector<std::vector<int64_t>> first{{3, 6, kHidden}, {3, 6}, {3, kHidden, 3}, {3, kHidden}},
      last{{3, 4, kHidden}, {3, 4}, {3, kHidden, 2}, {3, kHidden}};
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_EQ(local_shape_of(params[i]->shape, params[i]->placements, {mesh, 0}), first[i]) << params[i]->name;
    EXPECT_EQ(local_shape_of(params[i]->shape, params[i]->placements, {mesh, 5}), last[i]) << params[i]->name;
  }
}

TEST(GroupedMlp, InitialValuesAreNormal) {
  Table options = options_of(8);
  options["residual_std"] = 0.1;
  const test::Subject subject = test::initialised(make_grouped_mlp(options));
  const auto std_of = [&](size_t i) { return test::values_of(*subject.params[i]).std().item<double>(); };
  // The standard deviation of a standard deviation is std / sqrt(2 n). The bounds are five of these.
  EXPECT_NEAR(std_of(0), 0.3, 5 * 0.3 / std::sqrt(2.0 * 8 * 2 * kFfn * kHidden));
  EXPECT_NEAR(std_of(2), 0.1, 5 * 0.1 / std::sqrt(2.0 * 8 * kFfn * kHidden));
  for (const size_t bias : {1, 3}) EXPECT_EQ(test::values_of(*subject.params[bias]).abs().max().item<double>(), 0);
}

// --- errors ---

TEST(GroupedMlp, RefusesWrongOptions) {
  const auto message = [](const std::string& key, const Value& value) {
    Table options = options_of(6);
    options[key] = value;
    return misuse_of([&] { make_grouped_mlp(options); });
  };
  EXPECT_EQ(message("parts", 4),
            "nn.grouped_mlp: 6 groups cannot be divided among 4 parts evenly: make parts a divisor of groups");
  EXPECT_NE(message("parts", 2).find("parts = 2 needs option 'axis'"), std::string::npos);
  EXPECT_NE(message("parts", 0).find("nn.grouped_mlp.parts must be at least 1"), std::string::npos);
  EXPECT_NE(message("groups", 0).find("nn.grouped_mlp.groups must be at least 1"), std::string::npos);
  EXPECT_NE(message("activation", "silu").find("must be one of"), std::string::npos);
  EXPECT_NE(misuse_of([] {
              make_grouped_mlp(Table{{"groups", 2}, {"hidden", 3}});
            }).find("option 'ffn' is missing"),
            std::string::npos);
}

TEST(GroupedMlp, RefusesWrongInputs) {
  const auto layer = make_grouped_mlp(options_of(3));
  test::initialise(test::subject(layer), 1, at::kDouble);
  const at::Tensor rows = at::zeros({5, kHidden}, at::kDouble);
  test::FakeContext context;
  const auto expect_refused = [&](const at::Tensor& x, const at::Tensor& group_rows, const std::string& part) {
    const std::string message = misuse_of([&] { layer->forward({x, group_rows}, context); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect_refused(rows, longs({2, 1, 1}, {3}),
                 "group_rows = [2, 1, 1] does not divide 5 rows: give a number of at least 0 for each group, 5 in total");
  expect_refused(rows, longs({2, 4, 1}, {3}), "group_rows = [2, 4, 1] does not divide 5 rows");
  expect_refused(rows, longs({-1, 5, 1}, {3}), "group_rows = [-1, 5, 1] does not divide 5 rows");
  expect_refused(rows, longs({int64_t{1} << 62, int64_t{1} << 62, 5}, {3}), "does not divide 5 rows");
  expect_refused(rows, longs({2, 3}, {2}),
                 "takes group_rows as int64 [3], the number of rows of each group on this rank, got int64[2]");
  expect_refused(rows, at::zeros({3}, at::kInt), "takes group_rows as int64 [3]");
  expect_refused(rows, at::empty({3}, at::TensorOptions(at::kLong).device(at::kMeta)), "reads group_rows on the CPU");
  expect_refused(rows.view({1, 5, kHidden}), longs({2, 2, 1}, {3}), "'up.weight' takes rows [n, 32], got float64[1, 5, 32]");
  expect_refused(at::zeros({5, 3}, at::kDouble), longs({2, 2, 1}, {3}), "takes rows [n, 32]");
  expect_refused(rows.to(at::kLong), longs({2, 2, 1}, {3}), "takes floating-point numbers");
}

}  // namespace
}  // namespace zt::nn
