// Each instruction set gives the same bits, for widths with and without a rest, in and past the caches.
#include "exchange/row_kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <type_traits>
#include <vector>

namespace zt::test {
namespace {

using moe::kernels::Tokens;

constexpr int64_t kTokens = 5;

template <class T>
struct RowKernels : testing::Test {};
using Types = testing::Types<double, float, c10::BFloat16, c10::Half>;
TYPED_TEST_SUITE(RowKernels, Types);

// Returns numbers of both signs: zeros, tiny, small and large ones, and with `special` also infinities and NaN.
template <class T>
std::vector<T> numbers(int64_t count, bool special) {
  const float limits[] = {0.0F, -0.0F, 6e-8F, -1e-39F, 1.0F, -65000.0F, INFINITY, -INFINITY, std::nanf("")};
  const size_t kinds = std::size(limits) - (special ? 0 : 3);
  const at::Tensor random = at::randn({count}, at::kDouble);
  std::vector<T> result;
  for (int64_t i = 0; i < count; ++i) {
    const bool is_limit = i % 7 == 3;
    result.push_back(is_limit ? static_cast<T>(limits[static_cast<size_t>(i / 7) % kinds])
                              : static_cast<T>(random.const_data_ptr<double>()[i]));
  }
  return result;
}

// The results of all loops, as bytes.
template <class T>
std::vector<char> results(Isa isa, int64_t routes, int64_t width, bool streams, bool special) {
  at::manual_seed(3);
  std::vector<int64_t> places;
  for (int64_t pair = 0; pair < kTokens * routes; ++pair) places.push_back(pair % 5 == 4 ? -1 : kTokens * routes - 1 - pair);
  const Tokens shape{places.data(), 0, kTokens, routes, width, streams, isa};
  const std::vector<T> tokens = numbers<T>(kTokens * width, special), rows = numbers<T>(kTokens * routes * width, special);
  const std::vector<Wide<T>> factors = numbers<Wide<T>>(kTokens * routes, false);
  std::vector<T> copied(rows.size()), summed(tokens.size()), with_more(tokens.size()), of_rows(rows.size());
  std::vector<Wide<T>> of_factors(factors.size());
  moe::kernels::copy_to_rows(copied.data(), tokens.data(), shape);
  moe::kernels::sum_to_tokens(summed.data(), rows.data(), factors.data(), static_cast<const T*>(nullptr), shape);
  moe::kernels::sum_to_tokens<T>(with_more.data(), rows.data(), nullptr, tokens.data(), shape);
  moe::kernels::sum_backward(of_rows.data(), of_factors.data(), tokens.data(), rows.data(), factors.data(), shape);
  std::vector<char> bytes;
  const auto append = [&](const auto& values) {
    const auto* first = reinterpret_cast<const char*>(values.data());
    bytes.insert(bytes.end(), first, first + values.size() * sizeof values[0]);
  };
  append(copied), append(summed), append(with_more), append(of_rows);
  // The sign of a sum that is not a number differs between instruction sets; only 16-bit results have one NaN.
  if (!special) append(of_factors);
  return bytes;
}

TYPED_TEST(RowKernels, GiveTheSameBitsWithEachInstructionSet) {
  constexpr bool kHasOneNan = std::is_same_v<TypeParam, c10::BFloat16>;
  for (const int64_t routes : {1, 2, 3}) {
    for (const int64_t width : {1, 31, 64, 200}) {
      for (const bool streams : {false, true}) {
        const std::vector<char> plain = results<TypeParam>(Isa::plain, routes, width, streams, kHasOneNan);
        for (const Isa isa : supported_isas()) {
          EXPECT_EQ(results<TypeParam>(isa, routes, width, streams, kHasOneNan), plain)
              << isa_name(isa) << ", " << routes << " routes, width " << width << ", streams " << streams;
        }
        EXPECT_EQ(results<TypeParam>(Isa::plain, routes, width, !streams, kHasOneNan), plain);
      }
    }
  }
}

// The vector form of the rounding to bfloat16 is that of single numbers.
TEST(RowKernelsOfBfloat16, RoundAsSingleNumbersDo) {
  const std::vector<int64_t> places{0};
  std::vector<c10::BFloat16> row;  // all numbers
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) row.emplace_back(static_cast<uint16_t>(bits), c10::BFloat16::from_bits());
  const auto width = static_cast<int64_t>(row.size());
  for (const Isa isa : supported_isas()) {
    for (const float factor : {1.0F, 1.001F, -3e-39F, 3e38F}) {
      std::vector<c10::BFloat16> sums(row.size());
      moe::kernels::sum_to_tokens<c10::BFloat16>(sums.data(), row.data(), &factor, nullptr,
                                                 Tokens{places.data(), 0, 1, 1, width, false, isa});
      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_EQ(sums[i].x, Bfloat16::narrow(0.0F + factor * Bfloat16::widen(row[i].x))) << isa_name(isa) << ", " << row[i].x;
      }
    }
  }
}

}  // namespace
}  // namespace zt::test
