// Tests layers that work on a tile of rows at a time, beside the same layers without tiles, which golden_test.cpp compares with
// PyTorch.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "layers/layers.h"
#include "nn/cpu/narrow.h"

namespace zt::nn {
namespace {

using Table = Value::Table;

constexpr int64_t kRows = 14;  // 2 samples of 7 tokens

at::Tensor numbers(at::IntArrayRef shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return (at::arange(numel, at::kDouble) * 0.7 + 0.3).sin().view(shape);
}

struct TileCase {
  std::string name;
  std::function<std::shared_ptr<Layer>(const Table&)> make;
  Table options;
  std::string tile;  // name of the option
};

void PrintTo(const TileCase& c, std::ostream* out) {
  *out << c.name;
}

std::vector<TileCase> tile_cases() {
  std::vector<TileCase> all{
      {"head", make_lm_loss, {{"vocab", 23}, {"hidden", 6}, {"std", 0.5}}, "tile"},
      {"head_bias", make_lm_loss, {{"vocab", 23}, {"hidden", 6}, {"std", 0.5}, {"norm", "none"}, {"bias", true}}, "tile"},
      {"block", make_block, {{"hidden", 6}, {"heads", 2}, {"ffn", 11}, {"dropout", 0.2}, {"std", 0.5}}, "mlp_tile"},
      {"block_residual", make_block, {{"hidden", 6}, {"heads", 2}, {"ffn", 11}, {"bias", false}, {"std", 0.5}}, "mlp_tile"},
  };
  for (const std::string activation : {"gelu", "gelu_tanh", "relu", "swiglu"}) {
    for (const bool bias : {false, true}) {
      all.push_back({"mlp_" + activation + (bias ? "_bias" : ""),
                     make_mlp,
                     {{"hidden", 6}, {"ffn", 11}, {"activation", activation}, {"bias", bias}, {"std", 0.5}},
                     "tile"});
    }
  }
  return all;
}

class Tile : public testing::TestWithParam<TileCase> {
 protected:
  static test::Subject subject(int64_t tile, at::ScalarType dtype = at::kDouble) {
    Table options = GetParam().options;
    if (tile > 0) options[GetParam().tile] = tile;
    const test::Subject made = test::subject(GetParam().make(options));
    test::initialise(made, 5, dtype);
    for (const auto& param : made.params)  // biases are initialised to 0: test them at other values
      test::values_of(*param).set_data(test::values_of(*param).data() + 0.1);
    return made;
  }
  // Runs forward and backward.
  static test::Result run(const test::Subject& subject, test::FakeContext& context) {
    const at::ScalarType dtype = test::values_of(*subject.params[0]).scalar_type();
    context.fields["labels"] = test::longs({0, -100, 22, 3, 4, 4, -100, 7, 8, -100, -100, -100, 1, 22}, {2, 7});
    const bool has_loss = GetParam().name.starts_with("head");
    return test::run(subject, {numbers({2, 7, 6}).to(dtype)}, context,
                     has_loss ? at::Tensor() : numbers({2, 7, 6}).add(0.2).to(dtype));
  }
};

TEST_P(Tile, GivesTheNumbersOfAllRowsAtOnce) {
  constexpr double kBound = 1e-14;  // sums of up to 23 products, in another order
  test::FakeContext whole_context;
  const test::Result whole = run(subject(0), whole_context);
  for (const int64_t tile : {1, 2, 3, 5, 13, 14, 100}) {
    test::FakeContext context;
    const test::Result result = run(subject(tile), context);
    if (whole.loss.defined()) EXPECT_NEAR(result.loss.item<double>() / whole.loss.item<double>(), 1, kBound) << tile;
    else EXPECT_LE(test::distance(result.out, whole.out), kBound) << tile;
    EXPECT_LE(test::distance(result.input_grads[0], whole.input_grads[0]), kBound) << tile;
    ASSERT_EQ(result.grads.size(), whole.grads.size());
    for (const auto& [name, gradient] : whole.grads)
      EXPECT_LE(test::distance(result.grads.at(name), gradient), kBound) << name << ", tile " << tile;
  }
}

// One tile of all rows has the same GEMMs.
TEST_P(Tile, OneTileGivesTheBitsOfAllRowsAtOnce) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    test::SinkContext whole_context(at::kFloat), context(at::kFloat);
    const test::Result whole = run(subject(0, dtype), whole_context), result = run(subject(kRows, dtype), context);
    if (whole.loss.defined()) EXPECT_TRUE(at::equal(result.loss, whole.loss));
    else EXPECT_TRUE(at::equal(result.out, whole.out));
    EXPECT_TRUE(at::equal(result.input_grads[0], whole.input_grads[0]));
    for (const auto& [name, gradient] : whole.grads) EXPECT_TRUE(at::equal(result.grads.at(name), gradient)) << name;
  }
}

// A sink that has a sum gets the sum of all tiles at once, as from a backward that the program splits.
TEST_P(Tile, AddsOneSumToASink) {
  const test::Subject tiled = subject(4, at::kFloat);
  test::SinkContext once(at::kFloat), twice(at::kFloat);
  const test::Result single = run(tiled, once);
  run(tiled, twice);
  twice.losses.clear();
  const test::Result both = run(tiled, twice);
  for (const auto& [name, gradient] : single.grads) {
    if (name.starts_with("attention")) continue;  // it has no tiles: its second GEMM begins with the content of the sink
    EXPECT_TRUE(at::equal(both.grads.at(name), 2 * gradient)) << name;
  }
}

TEST_P(Tile, RoundsASinkOf16BitsOnce) {
  const test::Subject tiled = subject(4, at::kBFloat16);
  test::SinkContext wide(at::kFloat), narrow(at::kBFloat16);
  const test::Result exact = run(tiled, wide), rounded = run(tiled, narrow);
  for (const auto& [name, gradient] : exact.grads) {
    if (name.starts_with("attention")) continue;
    EXPECT_TRUE(at::equal(rounded.grads.at(name), gradient.to(at::kBFloat16))) << name;
  }
}

TEST_P(Tile, DefersNothing) {
  const test::Subject tiled = subject(4);
  test::FakeContext at_once, waiting;
  const test::Result wanted = run(tiled, at_once);
  waiting.defers = true;
  const test::Result got = run(tiled, waiting);
  EXPECT_EQ(waiting.deferred.size(), GetParam().name.starts_with("block") ? 2U : 0U);  // the attention's two matmuls
  for (const auto& work : waiting.deferred) work();
  for (const auto& [param, gradient] : waiting.sunk)
    EXPECT_TRUE(at::equal(gradient, wanted.grads.at(param->name))) << param->name;
  EXPECT_EQ(waiting.sunk.size(), wanted.grads.size());
}

TEST_P(Tile, ComputesNothingForFrozenWeights) {
  const test::Subject tiled = subject(4);
  test::FakeContext context, without;
  const test::Result wanted = run(tiled, context);
  without.keeps_gradients = false;
  const test::Result got = run(tiled, without);
  EXPECT_TRUE(without.sunk.empty());
  EXPECT_TRUE(at::equal(got.input_grads[0], wanted.input_grads[0]));
}

INSTANTIATE_TEST_SUITE_P(Nn, Tile, testing::ValuesIn(tile_cases()), [](const auto& info) { return info.param.name; });

// The logits are sums of products of small integers, which are exact.
TEST(TiledHead, HasTheLossOfTheSameLogitsBitForBit) {
  const auto loss_of = [](int64_t tile) {
    const test::Subject subject =
        test::subject(make_lm_loss(Table{{"vocab", 23}, {"hidden", 6}, {"norm", "none"}, {"bias", true}, {"tile", tile}}));
    const at::Tensor weights = (at::arange(23 * 6) * 7).remainder(5).sub(2).view({23, 6});
    test::set_values(subject, {{"weight", weights}, {"bias", at::arange(23).remainder(3)}}, at::kFloat);
    test::FakeContext context;
    context.fields["labels"] = (at::arange(kRows, at::kLong) * 5).remainder(23).view({2, 7});
    return test::run(subject, {(at::arange(kRows * 6) * 3).remainder(7).sub(3).view({2, 7, 6}).to(at::kFloat)}, context).loss;
  };
  for (const int64_t tile : {1, 3, 14}) EXPECT_TRUE(at::equal(loss_of(tile), loss_of(0))) << tile;
}

TEST(TiledHead, NoSamples) {
  const auto subject = test::initialised(make_lm_loss(Table{{"vocab", 5}, {"hidden", 3}, {"tile", 2}}));
  test::FakeContext context;
  context.fields["labels"] = at::zeros({0, 2}, at::kLong);
  const test::Result result = test::run(subject, {at::zeros({0, 2, 3}, at::kDouble)}, context);
  EXPECT_EQ(result.loss.item<double>(), 0);
  EXPECT_EQ(result.grads.at("weight").abs().max().item<double>(), 0);
}

// Nothing is overwritten, other than in a backward with all logits.
TEST(TiledHead, BackwardRunsAgain) {
  const auto subject = test::initialised(make_lm_loss(Table{{"vocab", 5}, {"hidden", 3}, {"tile", 1}}));
  test::FakeContext context;
  context.fields["labels"] = at::ones({1, 2}, at::kLong);
  const at::Tensor x = numbers({1, 2, 3}).set_requires_grad(true);
  subject.forward({x}, context);
  const at::Tensor sum = context.losses.at(0).sum;
  const at::Tensor first = torch::autograd::grad({sum}, {x}, {}, true)[0];
  EXPECT_TRUE(at::equal(torch::autograd::grad({sum}, {x}, {}, true)[0], first));
}

TEST(TiledHead, RefusesLabelsOutOfRange) {
  const auto subject = test::initialised(make_lm_loss(Table{{"vocab", 5}, {"hidden", 3}, {"tile", 1}}));
  test::FakeContext context;
  context.fields["labels"] = test::longs({1, 5}, {1, 2});
  const auto forward = [&] { subject.forward({at::zeros({1, 2, 3}, at::kDouble)}, context); };
  EXPECT_NE(test::misuse_of(forward).find("label 5 at sample 0, index 1"), std::string::npos);
  context.fields["labels"] = test::longs({1}, {1, 1});
  EXPECT_NE(test::misuse_of(forward).find("one label per row"), std::string::npos);
}

TEST(TileOptions, AreChecked) {
  const auto refused = [](const std::function<void()>& make, const char* text) {
    EXPECT_NE(test::misuse_of(make).find(text), std::string::npos) << test::misuse_of(make);
  };
  refused([] { make_mlp(Table{{"hidden", 3}, {"ffn", 5}, {"tile", -1}}); }, "at least 0");
  refused([] { make_lm_loss(Table{{"hidden", 3}, {"vocab", 5}, {"loss", false}, {"tile", 2}}); }, "with loss = true");
  refused(
      [] {
        make_gpt(Table{{"layers", 0}, {"hidden", 4}, {"heads", 1}, {"vocab", 5}, {"seq", 2}, {"mlp_tile", 2}});
      },
      "nn.gpt.mlp_tile has an effect only in blocks with an MLP of nn.gpt");
  const auto model =
      make_gpt(Table{{"layers", 1}, {"hidden", 4}, {"heads", 1}, {"vocab", 5}, {"seq", 2}, {"mlp_tile", 2}, {"head_tile", 3}});
  EXPECT_FALSE(model->options().get_if<Table>()->contains("mlp_tile"));  // it says how the model runs, not what it is
  EXPECT_FALSE(model->options().get_if<Table>()->contains("head_tile"));
}

}  // namespace
}  // namespace zt::nn
