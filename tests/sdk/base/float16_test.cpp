// Compares the conversions of 16-bit floats with c10's and with their definition.
#include "zt/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace zt {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Calls check(x) for fp32 numbers of every exponent and both signs: all upper halves, each with lower halves around every value
// where the direction of rounding can change.
template <class Check>
void for_each_turn(Check check) {
  std::vector<uint32_t> low{0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
  for (uint32_t step = 0x1000; step < 0x10000; step += 0x1000) low.insert(low.end(), {step - 1, step, step + 1});
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t bits : low) check(float_of(high << 16 | bits));
  }
}

// Compares all bits of our conversions with c10's for one format, except for the NaN to which a NaN is widened.
template <class Ours, class Theirs>
void expect_conversions_of() {
  int wrong = 0;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float expected = Theirs(static_cast<uint16_t>(half), Theirs::from_bits()), found = Ours::widen(half);
    const bool equal = std::isnan(expected) ? std::isnan(found) : bits_of(found) == bits_of(expected);
    if (!equal && wrong++ < 5) ADD_FAILURE() << half << " became " << found << " and not " << expected;
  }
  for_each_turn([&](float x) {
    const uint16_t expected = Theirs(x).x, found = Ours::narrow(x);
    if (found != expected && wrong++ < 5) ADD_FAILURE() << x << " became " << found << " and not " << expected;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Float16, Bfloat16IsC10s) {
  expect_conversions_of<Bfloat16, c10::BFloat16>();
}

TEST(Float16, Float16IsC10s) {
  expect_conversions_of<Float16, c10::Half>();
}

// Checks the definition, without c10: widening and narrowing gives the same number, the middle of two neighbours is rounded to
// the even one, and a number next to the middle to the nearer one.
template <class Format>
void expect_nearest_even(uint16_t infinity) {
  for (uint16_t half = 0; half < infinity; ++half) {
    const float below = Format::widen(half);
    EXPECT_EQ(Format::narrow(below), half);
    if (half + 1 == infinity) continue;  // from the middle to the next power of two on, numbers become infinity
    const float above = Format::widen(half + 1);
    const auto middle = static_cast<float>((static_cast<double>(below) + above) / 2);
    if (middle == below || middle == above) continue;  // fp32 has no number between these two
    EXPECT_EQ(Format::narrow(middle), half + half % 2);
    EXPECT_EQ(Format::narrow(-middle), 0x8000 + half + half % 2);
    EXPECT_EQ(Format::narrow(std::nextafter(middle, 0.0F)), half);
    EXPECT_EQ(Format::narrow(std::nextafter(middle, kInf)), half + 1);
  }
}

TEST(Float16, RoundsToNearestEven) {
  expect_nearest_even<Bfloat16>(0x7F80);
  expect_nearest_even<Float16>(0x7C00);
  EXPECT_EQ(Float16::narrow(65519.996F), 0x7BFF);  // 65504 is the largest number, 65536 the one after it
  EXPECT_EQ(Float16::narrow(65520.0F), 0x7C00);
  EXPECT_EQ(Bfloat16::narrow(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(Float16::narrow(-kInf), 0xFC00);
}

TEST(Float16, OneNanHasNoSign) {
  for (const uint32_t bits : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0xFFFFFFFFU}) {
    EXPECT_EQ(bits_of(with_one_nan(float_of(bits))), 0x7FC00000U);
    EXPECT_EQ(Bfloat16::narrow(float_of(bits)), 0x7FC0);
    EXPECT_EQ(Float16::narrow(float_of(bits)), 0x7E00 | (bits >> 16 & 0x8000));
  }
  for (const float x : {-kInf, -1.0F, -0.0F, 1e-45F, 65520.0F, kInf}) EXPECT_EQ(bits_of(with_one_nan(x)), bits_of(x));
}

// Converts random bits in loops of 64 elements and one by one: vector code and scalar code.
template <class T>
void expect_c10s_in_a_loop() {
  uint32_t seed = 1;
  float in[64], back[64];
  T out[64];
  for (int round = 0; round < 20'000; ++round) {
    for (float& x : in) x = float_of(seed = seed * 1664525 + 1013904223);
    for (int i = 0; i < 64; ++i) out[i] = narrow<T>(in[i]);
    for (int i = 0; i < 64; ++i) back[i] = widen(out[i]);
    for (int i = 0; i < 64; ++i) {
      ASSERT_EQ(out[i].x, static_cast<T>(in[i]).x) << in[i];
      ASSERT_EQ(out[i].x, narrow<T>(in[i]).x) << in[i];
      if (std::isnan(in[i])) continue;
      ASSERT_EQ(bits_of(back[i]), bits_of(static_cast<float>(out[i]))) << in[i];
    }
  }
}

TEST(Float16, LoopsOverC10sTypes) {
  expect_c10s_in_a_loop<c10::BFloat16>();
  expect_c10s_in_a_loop<c10::Half>();
  EXPECT_EQ(narrow<double>(widen(0.1)), 0.1);
  EXPECT_EQ(narrow<int64_t>(widen(int64_t{1} << 62)), int64_t{1} << 62);
}

}  // namespace
}  // namespace zt
