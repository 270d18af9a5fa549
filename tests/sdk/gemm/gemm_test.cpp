// GEMMs: compares LibTorch's provider with fp64, and checks which arguments are refused.
#include "zt/gemm/gemm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/gemm_products.h"
#include "support/message.h"
#include "zt/gemm/gemm_choice.h"
#include "zt/plan/allocation.h"

namespace zt::test {
namespace {

TEST(Gemm, AtenMultiplies) {
  check_products("aten");
}

void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  gemm(GemmKind::forward, a, b, c);
}

TEST(Gemm, RefusesWhatDoesNotFit) {
  const at::Tensor a = at::ones({2, 3}), b = at::ones({3, 4}), c = at::zeros({2, 4});
  EXPECT_SAYS("cannot multiply float32[2, 3] on cpu by float32[2, 4] on cpu", multiply(a, at::ones({2, 4}), c));
  EXPECT_SAYS("into float32[4, 2]", multiply(a, b, at::zeros({4, 2})));
  EXPECT_SAYS("cannot multiply", multiply(a, b.to(at::kDouble), c));
  EXPECT_SAYS("cannot multiply", multiply(a, b, c.to(at::kBFloat16)));
  EXPECT_SAYS("cannot multiply", multiply(a.to(at::kDouble), b.to(at::kDouble), c));
  EXPECT_SAYS("cannot multiply", multiply(a.to(at::kLong), b.to(at::kLong), c.to(at::kLong)));
  EXPECT_SAYS("cannot multiply", multiply(a, b, c.to(at::kMeta)));
  EXPECT_SAYS("cannot multiply", multiply(at::ones({2}), b, c));
  EXPECT_EQ(c.abs().sum().item<float>(), 0);
}

// A whole fp32 copy of b would have 128 MiB.
TEST(Gemm, WidensInTiles) {
  const at::Tensor a = at::ones({16, 256}, at::kBFloat16), b = at::ones({256, 131072}, at::kBFloat16);
  const at::Tensor c = at::empty({16, 131072}, at::kFloat);
  AllocationWatch watch;
  {
    const AllocationWatch::Scope counted(watch);
    find_gemm("aten").run(a, b, c, 0, 1);
  }
  EXPECT_LT(watch.peak_bytes(), 4 << 20);
  EXPECT_TRUE(c.eq(256).all().item<bool>());
}

TEST(Gemm, KeepsGradientsOut) {
  const at::Tensor a = at::ones({2, 3}).set_requires_grad(true), c = at::zeros({2, 4});
  multiply(a, at::ones({3, 4}), c);
  EXPECT_FALSE(c.requires_grad());
  EXPECT_TRUE(c.eq(3).all().item<bool>());
}

TEST(Gemm, OnlyChecksMetaTensors) {
  const auto on_meta = [](int64_t rows, int64_t columns) { return at::empty({rows, columns}, at::TensorOptions(at::kMeta)); };
  multiply(on_meta(2, 3), on_meta(3, 4), on_meta(2, 4));
  EXPECT_SAYS("cannot multiply", multiply(on_meta(2, 3), on_meta(2, 4), on_meta(2, 4)));
}

class Nothing : public Gemm {
 public:
  bool takes(at::DeviceType, at::ScalarType) const override { return false; }
  void run(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, double) const override {}
};

TEST(Gemm, NamesProvidersOnce) {
  EXPECT_EQ(gemm_providers().front(), "aten");
  EXPECT_SAYS("there is no gemm provider 'atem': did you mean 'aten'?", find_gemm("atem"));
  EXPECT_SAYS("'aten' is registered already", register_gemm("aten", std::make_shared<Nothing>()));
  register_gemm("nothing", std::make_shared<Nothing>());
  EXPECT_TRUE(has_gemm("nothing"));
  EXPECT_EQ(gemm_providers().back(), "nothing");
  EXPECT_SAYS("'nothing' multiplies nothing on the CPU", fixed_gemm_choice("nothing"));
  EXPECT_SAYS("'cublas' multiplies nothing on the CPU", fixed_gemm_choice("cublas"));
}

}  // namespace
}  // namespace zt::test
