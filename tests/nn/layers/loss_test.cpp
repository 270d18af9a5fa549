// Tests the losses: valid tokens, extreme logits, modes, error messages.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/layers.h"
#include "nn/support/run.h"

namespace zt::nn {
namespace {

using Table = Value::Table;
using test::initialised;
using test::longs;
using test::misuse_of;

TEST(LmLoss, CountsValidTokens) {
  const auto layer = make_lm_loss(Table{{"vocab", 5}, {"hidden", 3}});
  const at::Tensor labels = longs({1, -100, 2, -100, -100, 0}, {2, 3});
  const Counts counts = layer->count([&](const std::string& name) { return name == "labels" ? labels : at::Tensor(); });
  EXPECT_EQ(counts.tokens, 3);
  EXPECT_EQ(counts.samples, 0);  // says nothing: the rows are the samples
}

TEST(LmLoss, NoValidTokenGivesZeroEverywhere) {
  const auto subject = initialised(make_lm_loss(Table{{"vocab", 5}, {"hidden", 3}}));
  test::FakeContext context;
  context.fields["labels"] = at::full({2, 2}, -100, at::kLong);
  const test::Result result = test::run(subject, {at::randn({2, 2, 3}, at::kDouble)}, context);
  EXPECT_EQ(result.loss.item<double>(), 0);
  EXPECT_EQ(result.input_grads[0].abs().max().item<double>(), 0);
  for (const auto& [name, gradient] : result.grads) EXPECT_EQ(gradient.abs().max().item<double>(), 0) << name;
}

TEST(LmLoss, NoSamples) {
  const auto subject = initialised(make_lm_loss(Table{{"vocab", 5}, {"hidden", 3}}));
  test::FakeContext context;
  context.fields["labels"] = at::zeros({0, 2}, at::kLong);
  const test::Result result = test::run(subject, {at::zeros({0, 2, 3}, at::kDouble)}, context);
  EXPECT_EQ(result.loss.item<double>(), 0);
  EXPECT_EQ(result.grads.at("weight").abs().max().item<double>(), 0);
}

TEST(LmLoss, GeneratingGivesLogitsAndNoLoss) {
  const auto layer = make_lm_loss(Table{{"vocab", 5}, {"hidden", 3}, {"norm", "none"}});
  const auto subject = initialised(layer);
  test::FakeContext context;
  context.mode = Mode::generate;
  const at::Tensor h = at::randn({2, 4, 3}, at::kDouble);
  const at::Tensor logits = subject.forward({h}, context)[0];
  EXPECT_TRUE(context.losses.empty());
  EXPECT_LE(test::distance(logits, h.matmul(test::values_of(*layer->params()[0]).t())), 1e-15);
  EXPECT_EQ(layer->io().outputs.at(0).name, "logits");
}

TEST(LmLoss, LargeLogitsDoNotOverflow) {
  const auto subject = initialised(make_cross_entropy(Table{}), at::kFloat);
  test::FakeContext context;
  context.fields["labels"] = longs({0, 1}, {1, 2});
  const at::Tensor logits = at::tensor({1e4F, 0.0F, -1e4F, 1e30F, 0.0F, -1e30F}).view({1, 2, 3});
  const test::Result result = test::run(subject, {logits}, context);
  EXPECT_FLOAT_EQ(static_cast<float>(result.loss.item<double>()), 1e30F);
  EXPECT_TRUE(at::equal(result.input_grads[0].view({2, 3}), at::tensor({0.0F, 0.0F, 0.0F, 1.0F, -1.0F, 0.0F}).view({2, 3})));
}

TEST(LmLoss, NanGivesNan) {
  const auto subject = initialised(make_cross_entropy(Table{}), at::kFloat);
  for (const int64_t place : {0, 17, 39}) {
    test::FakeContext context;
    context.fields["labels"] = longs({3}, {1, 1});
    at::Tensor logits = at::zeros({1, 1, 40});
    logits.view({-1})[place] = std::nanf("");
    EXPECT_TRUE(std::isnan(test::run(subject, {logits}, context).loss.item<double>())) << place;
  }
}

TEST(LmLoss, RefusesLabelsOutOfRange) {
  const auto subject = initialised(make_lm_loss(Table{{"vocab", 5}, {"hidden", 3}}));
  test::FakeContext context;
  context.fields["labels"] = longs({1, 5}, {1, 2});
  EXPECT_EQ(misuse_of([&] {
              subject.forward({at::zeros({1, 2, 3}, at::kDouble)}, context);
            }),
            "label 5 at sample 0, index 1 is neither one of the 5 classes nor the ignore_index -100");
  context.fields["labels"] = longs({1}, {1, 1});
  EXPECT_NE(misuse_of([&] {
              subject.forward({at::zeros({1, 2, 3}, at::kDouble)}, context);
            }).find("one label per row"),
            std::string::npos);
}

TEST(LmLoss, RefusesATiedHeadOfAnotherShape) {
  const auto embedding = make_embedding(Table{{"vocab", 5}, {"hidden", 4}});
  const Table options{{"vocab", 5}, {"hidden", 3}, {"tied", Object::of<Layer>(embedding)}};
  EXPECT_NE(misuse_of([&] { make_lm_loss(options); }).find("[vocab, hidden] = [5, 3], but 'weight' is [5, 4]"),
            std::string::npos);
  EXPECT_NE(misuse_of([&] {
              make_lm_loss(Table{{"vocab", 5}, {"hidden", 3}, {"tied", 4}});
            }).find("an nn.embedding layer or a Param"),
            std::string::npos);
}

}  // namespace
}  // namespace zt::nn
