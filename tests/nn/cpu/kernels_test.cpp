#include "cpu/kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernel_results.h"
#include "zt/base/isa.h"

// Declares results() of kernels_form.cpp for one instruction set.
#define ZT_DECLARE_FORM(FORM)                             \
  namespace zt::nn::kernels_##FORM {                      \
    template <class T>                                    \
    std::vector<kernels::Wide<T>> results(int64_t width); \
  }
ZT_DECLARE_FORM(plain)
ZT_DECLARE_FORM(avx2)
ZT_DECLARE_FORM(avx512)

namespace zt::nn {
namespace {

template <class T>
void expect_equal_bits(const std::vector<T>& got, const std::vector<T>& expected, const char* form, int64_t width) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(T)), 0)
        << form << ", width " << width << ", result " << i << ": " << got[i] << " for " << expected[i];
  }
}

template <class T>
void expect_equal_forms() {
  for (const int64_t width : {1, 3, 7, 8, 15, 16, 17, 33, 64, 100, 255, 257, 600}) {
    const auto expected = kernels_plain::results<T>(width);
    for (const Isa isa : supported_isas()) {
      if (isa == Isa::avx2) expect_equal_bits(kernels_avx2::results<T>(width), expected, "avx2", width);
      if (isa == Isa::avx512) expect_equal_bits(kernels_avx512::results<T>(width), expected, "avx512", width);
    }
    expect_equal_bits(kernels::results<T>(width), expected, "the library's choice", width);
  }
}

TEST(Kernels, AllInstructionSetsGiveEqualBits) {
  expect_equal_forms<float>();
  expect_equal_forms<double>();
  expect_equal_forms<c10::BFloat16>();
  expect_equal_forms<c10::Half>();
}

TEST(Kernels, ExponentialIsAccurate) {
  const kernels::RowStats unit{0, 1};
  double worst = 0;
  for (double x = -87.2; x <= 0; x += 0.00213) {
    const auto in = static_cast<float>(x);
    float out = 0;
    kernels::scaled_softmax(&out, &in, 1, unit, 1);
    worst = std::max(worst, std::fabs(out / std::exp(static_cast<double>(in)) - 1));
  }
  EXPECT_LT(worst, 4e-7);
  const float far = -200;
  float out = 1;
  kernels::scaled_softmax(&out, &far, 1, unit, 1);
  EXPECT_EQ(out, 0);
}

TEST(Kernels, RowStatsOfAllLengths) {
  for (int64_t n = 1; n < 600; n += 7) {
    const at::Tensor x = at::randn({n}, at::kDouble) * 3;
    const at::Tensor narrow = x.to(at::kFloat);
    const auto stats = kernels::row_stats(x.const_data_ptr<double>(), n);
    const auto rough = kernels::row_stats(narrow.const_data_ptr<float>(), n);
    const double lse = x.logsumexp(0).item<double>();
    EXPECT_NEAR(stats.largest + std::log(stats.sum), lse, 1e-13 * n);
    EXPECT_EQ(rough.largest, narrow.max().item<double>());
    // In units of eps / 2, the error of a term is 1, that of its rounded input up to 8, that of a sum of 16 terms in a lane up to
    // 16.
    EXPECT_NEAR(rough.largest + std::log(rough.sum), lse, (8 + 16 + 8) * 0x1p-24 * 4);
  }
}

}  // namespace
}  // namespace zt::nn
