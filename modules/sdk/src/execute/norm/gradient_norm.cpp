#include "zt/execute/gradient_norm.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

constexpr int kLeastExponent = -1074;  // bit 0 of limb 0 stands for 2^-1074
constexpr int kSignificand = 53;

// Returns bits [first, first + count) of an array of 32-bit words, count <= 64. Bits past the end are zero.
uint64_t extract(std::span<const uint32_t> words, int first, int count) {
  uint64_t out = 0;
  for (int bit = 0; bit < count; ++bit) {
    const int at = first + bit;
    if (at / 32 < static_cast<int>(words.size())) out |= static_cast<uint64_t>(words[at / 32] >> (at % 32) & 1) << bit;
  }
  return out;
}

bool any_bit_below(std::span<const uint32_t> words, int end) {
  for (int word = 0; word < end / 32; ++word) {
    if (words[word] != 0) return true;
  }
  return end % 32 != 0 && extract(words, end / 32 * 32, end % 32) != 0;
}

// Returns the number whose bit i has the value 2^(i - 1074), rounded to nearest even.
double round_to_double(std::span<const uint32_t> words) {
  int top = static_cast<int>(words.size()) - 1;
  while (top >= 0 && words[top] == 0) --top;
  if (top < 0) return 0;
  const int bits = top * 32 + std::bit_width(words[top]);
  if (bits <= kSignificand) return std::ldexp(static_cast<double>(extract(words, 0, kSignificand)), kLeastExponent);
  const int first = bits - kSignificand;
  uint64_t significand = extract(words, first, kSignificand);
  const bool half = extract(words, first - 1, 1) != 0;
  if (half && ((significand & 1) != 0 || any_bit_below(words, first - 1))) ++significand;
  return std::ldexp(static_cast<double>(significand), first + kLeastExponent);
}

}  // namespace

void ExactSum::propagate() {
  for (int i = 0; i + 1 < ExactWords::kLimbs; ++i) {
    words_[i + 1] += words_[i] >> 32;  // rounds down, so that the rest is in [0, 2^32)
    words_[i] &= 0xFFFFFFFF;
  }
  pending_ = 1;
}

void ExactSum::merge(const ExactSum& other) {
  ExactSum addend = other;
  addend.propagate();
  propagate();
  for (int i = 0; i < ExactWords::kCount; ++i) words_[i] += addend.words_[i];
  ++pending_;
}

bool ExactSum::is_finite() const {
  return words_[ExactWords::kNan] == 0 && words_[ExactWords::kPlusInf] == 0 && words_[ExactWords::kMinusInf] == 0;
}

double ExactSum::value() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (words_[ExactWords::kNan] != 0 || (words_[ExactWords::kPlusInf] != 0 && words_[ExactWords::kMinusInf] != 0))
    return std::numeric_limits<double>::quiet_NaN();
  if (!is_finite()) return words_[ExactWords::kPlusInf] != 0 ? kInfinity : -kInfinity;
  ExactSum magnitude = *this;
  magnitude.propagate();
  const bool negative = magnitude.words_[ExactWords::kLimbs - 1] < 0;
  if (negative) {
    for (int i = 0; i < ExactWords::kLimbs; ++i) magnitude.words_[i] = -magnitude.words_[i];
    magnitude.propagate();
  }
  std::array<uint32_t, ExactWords::kLimbs + 1> words;
  for (int i = 0; i < ExactWords::kLimbs; ++i) words[i] = static_cast<uint32_t>(magnitude.words_[i]);
  words[ExactWords::kLimbs] = static_cast<uint32_t>(magnitude.words_[ExactWords::kLimbs - 1] >> 32);
  const double rounded = round_to_double(words);
  return negative ? -rounded : rounded;
}

at::Tensor ExactSum::state() const {
  ExactSum settled = *this;
  settled.propagate();
  at::Tensor out = at::empty({ExactWords::kCount}, at::kLong);
  std::memcpy(out.data_ptr(), settled.words_.data(), sizeof(words_));
  return out;
}

ExactSum ExactSum::from_state(const at::Tensor& state) {
  if (!state.defined() || !state.is_cpu() || state.scalar_type() != at::kLong || state.numel() != ExactWords::kCount ||
      !state.is_contiguous()) {
    misuse("the state of an exact sum is a contiguous int64[{}] on cpu, got {}", static_cast<int>(ExactWords::kCount),
           describe(state));
  }
  ExactSum sum;
  std::memcpy(sum.words_.data(), state.const_data_ptr(), sizeof(sum.words_));
  sum.propagate();
  return sum;
}

}  // namespace zt
