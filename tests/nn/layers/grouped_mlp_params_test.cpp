// Tests the parameters of grouped_mlp, how ranks cut them, and its errors.
#include <gtest/gtest.h>

#include "grouped_mlp_options.h"
#include "layers/grouped_mlp.h"
#include "layers/layers.h"
#include "nn/cpu/narrow.h"

namespace zt::nn {
namespace {

using Table = Value::Table;
using test::longs;
using test::misuse_of;

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
