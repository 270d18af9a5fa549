// The choice of GEMM providers: groups of GEMMs, choices as data, the choice in use, ranks with different choices.
#include "zt/gemm/gemm_choice.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <set>

#include "support/message.h"

namespace zt::test {
namespace {

thread_local int fake_runs = 0;

// Multiplies fp32 matrices by "aten", and counts its calls.
class Fake : public Gemm {
 public:
  bool takes(at::DeviceType device, at::ScalarType dtype) const override { return device == at::kCPU && dtype == at::kFloat; }
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override {
    find_gemm("aten").run(a, b, c, beta, alpha);
    ++fake_runs;
  }
};

const GemmGroup kFloat{at::kFloat}, kFewRows{at::kFloat, false, true}, kHalf{at::kHalf};

class Choice : public testing::Test {
 protected:
  void SetUp() override { static const bool once [[maybe_unused]] = (register_gemm("fake", std::make_shared<Fake>()), true); }
  void TearDown() override { use_gemm_choice(default_gemm_choice()); }

  static int fakes_of(const GemmShape& s) {
    fake_runs = 0;
    gemm(s.kind, at::ones({s.m, s.k}, s.dtype), at::ones({s.k, s.n}, s.dtype), at::empty({s.m, s.n}, s.dtype));
    return fake_runs;
  }
};

TEST_F(Choice, GroupsHaveNames) {
  std::set<std::string> names;
  for (const GemmGroup& group : all_gemm_groups()) names.insert(name_of(group));
  EXPECT_EQ(names.size(), 12U);
  EXPECT_TRUE(names.contains("float32") && names.contains("float64_of_few_rows") && names.contains("bfloat16_to_float32"));
  EXPECT_TRUE(names.contains("float16_to_float32_of_few_rows"));
  EXPECT_FALSE(names.contains("float64_to_float32"));
}

// A scope holds for the calling thread, for the dtypes that its provider takes, and until it ends.
TEST_F(Choice, AScopeChoosesForAWhile) {
  const GemmShape shape{GemmKind::forward, at::kFloat, 3, 4, 5};
  EXPECT_EQ(fakes_of(shape), 0);
  {
    const GemmScope scope("fake");
    EXPECT_EQ(fakes_of(shape), 1);
    EXPECT_EQ(fakes_of({GemmKind::forward, at::kDouble, 3, 4, 5}), 0);
    {
      const GemmScope inner("aten");
      EXPECT_EQ(fakes_of(shape), 0);
    }
    EXPECT_EQ(fakes_of(shape), 1);
  }
  EXPECT_EQ(fakes_of(shape), 0);
  EXPECT_CONTAINS(message_of<Misuse>([] { GemmScope("fak"); }), "did you mean 'fake'?");
}

TEST_F(Choice, AScopeMultipliesInLinear) {
  for (const int64_t rows : {1, 3}) {
    const at::Tensor x = at::randn({1, rows, 5}), w = at::randn({4, 5}), bias = at::randn({4}), before = bias.clone();
    const at::Tensor expected = at::linear(x, w, bias);
    const at::NoGradGuard no_grad;
    const GemmScope scope("fake");
    fake_runs = 0;
    EXPECT_TRUE(at::allclose(linear_by_scope(x, w, bias), expected));
    EXPECT_TRUE(at::allclose(linear_by_scope(x, w), expected - bias, 1e-5, 1e-6));
    EXPECT_EQ(fake_runs, 2);
    EXPECT_TRUE(bias.equal(before));  // of one row, an expanded bias would be the bias itself
  }
}

TEST_F(Choice, FewRowsNeedALargeMatrix) {
  const auto is_few = [](GemmKind kind, int64_t m, int64_t n, int64_t k) {
    return gemm_group({kind, at::kFloat, m, n, k}).few_rows;
  };
  EXPECT_TRUE(is_few(GemmKind::forward, 63, 4096, 1024));
  EXPECT_TRUE(is_few(GemmKind::forward, 1, 4096, 1024));
  EXPECT_TRUE(is_few(GemmKind::forward, 32, 256, 1024));
  EXPECT_TRUE(is_few(GemmKind::input_gradient, 32, 1024, 256));
  EXPECT_TRUE(is_few(GemmKind::weight_gradient, 1024, 256, 63));
  EXPECT_FALSE(is_few(GemmKind::forward, 64, 4096, 1024));
  EXPECT_FALSE(is_few(GemmKind::forward, 32, 1023, 256));
  EXPECT_FALSE(is_few(GemmKind::input_gradient, 32, 256, 1024));
  EXPECT_FALSE(is_few(GemmKind::weight_gradient, 4096, 1024, 64));
  EXPECT_FALSE(is_few(GemmKind::weight_gradient, 256, 1024, 63));
  EXPECT_FALSE(is_few(GemmKind::forward, 0, 1, 2));
}

TEST_F(Choice, IsAtenWithoutAModule) {
  for (const auto& [group, provider] : default_gemm_choice()) EXPECT_EQ(provider, "aten") << name_of(group);
  EXPECT_EQ(gemm_choice(), default_gemm_choice());
}

TEST_F(Choice, DecidesWhichProviderRuns) {
  GemmChoice choice = default_gemm_choice();
  choice[kFewRows] = "fake";
  use_gemm_choice(choice);
  EXPECT_EQ(gemm_choice(), choice);
  EXPECT_EQ(fakes_of({GemmKind::forward, at::kFloat, 8, 1024, 1024}), 1);
  EXPECT_EQ(fakes_of({GemmKind::forward, at::kFloat, 64, 1024, 1024}), 0);
  EXPECT_EQ(fakes_of({GemmKind::forward, at::kDouble, 8, 1024, 1024}), 0);
}

TEST_F(Choice, OfOneProviderKeepsTheDefaultForOtherDtypes) {
  const GemmChoice choice = fixed_gemm_choice("fake");
  EXPECT_EQ(choice.at(kFloat), "fake");
  EXPECT_EQ(choice.at(kFewRows), "fake");
  EXPECT_EQ(choice.at({at::kDouble}), "aten");
  use_gemm_choice(choice);
  EXPECT_EQ(fakes_of({GemmKind::forward, at::kFloat, 65, 66, 67}), 1);
  use_gemm_choice(fixed_gemm_choice("default"));
  EXPECT_EQ(gemm_choice(), default_gemm_choice());
  EXPECT_SAYS("no gemm provider 'fkae': did you mean 'fake'?", fixed_gemm_choice("fkae"));
}

TEST_F(Choice, IsSetAsTheDefault) {
  const GemmChoice before = default_gemm_choice(), other = fixed_gemm_choice("fake");
  set_default_gemm_choice(other);
  EXPECT_EQ(gemm_choice(), other);
  EXPECT_EQ(default_gemm_choice(), other);
  set_default_gemm_choice(before);
  EXPECT_EQ(gemm_choice(), before);
}

TEST_F(Choice, ThatIsInvalidChangesNothing) {
  const GemmChoice before = gemm_choice();
  GemmChoice broken = before;
  broken[kHalf] = "fake";
  EXPECT_SAYS("'fake' does not multiply float16", use_gemm_choice(broken));
  broken = before;
  broken[kFloat] = "unknown";
  EXPECT_SAYS("no gemm provider 'unknown'", use_gemm_choice(broken));
  broken = before;
  broken.erase({at::kHalf, true});
  EXPECT_SAYS("names none for float16_to_float32", use_gemm_choice(broken));
  EXPECT_SAYS("names none for float16_to_float32", set_default_gemm_choice(broken));
  EXPECT_EQ(gemm_choice(), before);
  EXPECT_EQ(default_gemm_choice(), before);
}

TEST_F(Choice, IsAlikeOnAllRanks) {
  const Value aten = to_value(default_gemm_choice()), fake = to_value(fixed_gemm_choice("fake"));
  check_gemm_choices_alike({aten});
  check_gemm_choices_alike({fake, fake, fake});
  EXPECT_SAYS(
      "\n  float32: 'aten' on ranks 0, 2, 'fake' on rank 1\n  float32_of_few_rows: 'aten' on ranks 0, 2, 'fake' on rank 1",
      check_gemm_choices_alike({aten, fake, aten}));
}

TEST_F(Choice, IsComparedWithASavedOne) {
  EXPECT_TRUE(differing_gemm_groups(to_value(default_gemm_choice())).empty());
  EXPECT_TRUE(differing_gemm_groups(Value()).empty());
  EXPECT_TRUE(differing_gemm_groups(Value::Table{{"forward/float32/64x64x64", "mkl"}}).empty());
  EXPECT_EQ(differing_gemm_groups(Value::Table{{"float32", "mkl"}, {"float64", "aten"}}), std::vector<std::string>{"float32"});
}

}  // namespace
}  // namespace zt::test
