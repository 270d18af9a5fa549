// Tests initial values: they are independent of sharding and have the published distributions.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/layers.h"
#include "nn/support/run.h"

namespace zt::nn {
namespace {

using Table = Value::Table;
using test::initialised;

TEST(Init, DoesNotDependOnTheShard) {
  for (const auto& param : make_block(Table{{"hidden", 12}, {"heads", 2}})->params()) {
    std::vector<double> whole(param->numel()), part(7);
    param->init(4, "x", 0, whole);
    const int64_t first = param->numel() / 3;
    param->init(4, "x", first, std::span(part).first(std::min<int64_t>(7, param->numel() - first)));
    for (int64_t i = 0; i < 7 && first + i < param->numel(); ++i) EXPECT_EQ(part[i], whole[first + i]) << param->name;
  }
}

TEST(Init, Gpt2AsPublished) {
  const auto model = make_gpt(Table{{"layers", 8}, {"hidden", 64}, {"heads", 4}, {"vocab", 500}, {"seq", 32}});
  const test::Subject subject = test::subject(model);
  test::initialise(subject, 1, at::kDouble);
  EXPECT_EQ(model->info().positions.size(), 10U);
  int64_t numel = 0;
  for (const auto& param : subject.params) {
    numel += param->numel();
    const double mean = test::values_of(*param).mean().item<double>();
    if (!param->is_matrix) {
      EXPECT_EQ(mean, param->name.ends_with("bias") ? 0 : 1) << param->name;
      continue;
    }
    const bool ends_in_residual = param->name.ends_with("out.weight") || param->name.ends_with("down.weight");
    const double std = ends_in_residual ? 0.02 / 4 : 0.02, n = static_cast<double>(param->numel());
    // The standard deviation of a mean is std / sqrt(n), that of a standard deviation std / sqrt(2 n). The bounds are five of
    // these.
    EXPECT_NEAR(mean, 0, 5 * std / std::sqrt(n)) << param->name;
    EXPECT_NEAR(test::values_of(*param).std().item<double>(), std, 5 * std / std::sqrt(2 * n)) << param->name;
  }
  // Published counts: 12 h^2 + 13 h per block, two embedding tables, the final norm. The head is tied.
  EXPECT_EQ(numel, 8 * (12 * 64 * 64 + 13 * 64) + 500 * 64 + 32 * 64 + 2 * 64);
}

TEST(Init, LlamaAsPublished) {
  const auto model =
      make_gpt(Table{{"layers", 2}, {"hidden", 96}, {"heads", 4}, {"kv_heads", 2}, {"vocab", 500}, {"family", "llama"}});
  int64_t numel = 0;
  for (const auto& param : model->params()) {
    numel += param->numel();
    EXPECT_FALSE(param->name.ends_with("bias")) << param->name;
  }
  // ffn = 256 (two thirds of 4 h, rounded up). q and out have h^2 elements each, k and v half of that each.
  EXPECT_EQ(numel, 2 * (3 * 96 * 96 + 3 * 96 * 256 + 2 * 96) + 2 * 500 * 96 + 96);
}

TEST(Init, LinearAsInPyTorch) {
  const auto subject = initialised(make_linear(Table{{"in", 100}, {"out", 300}}));
  const at::Tensor weight = test::values_of(*subject.params[0]);
  // Uniform in +-0.1: the standard deviation is 0.1 / sqrt(3). Its estimate from n = 30,000 has a relative error of about
  // 0.45 / sqrt(n).
  EXPECT_LE(weight.abs().max().item<double>(), 0.1);
  EXPECT_NEAR(weight.std().item<double>(), 0.1 / std::sqrt(3.0), 5 * 0.0577 * 0.45 / 173);
  EXPECT_NE(test::values_of(*subject.params[1]).abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace zt::nn
