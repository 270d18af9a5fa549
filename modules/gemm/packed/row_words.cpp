#include "packed/row_words.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace zt::packed {

namespace {

constexpr int64_t kSumLanes = 16;

// Sum i of 16 takes every 16th number from number i on. Sums i and i + 8, then i and i + 4, ... are added.
float sum_in_lanes(const float* numbers, int64_t count) {
  float sums[kSumLanes] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (int64_t lane = 0; lane < kSumLanes; ++lane) sums[lane] += numbers[i + lane];
  }
  for (int64_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

// Returns the largest absolute value. NaN if a number is not finite.
float largest_finite(const float* numbers, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(numbers[i]) & 0x7fffffffU);
  return largest >= 0x7f800000U ? std::numeric_limits<float>::quiet_NaN() : std::bit_cast<float>(largest);
}

// Rounds to the nearest integer, ties to even. |number| must be below 2^22: then the sum's last bit is worth 1.
int32_t rounded(float number) {
  constexpr float kShift = 0x1.8p23F;
  return static_cast<int32_t>(std::bit_cast<uint32_t>(number + kShift)) - static_cast<int32_t>(std::bit_cast<uint32_t>(kShift));
}

int64_t columns_per_word_of(PanelArithmetic arithmetic) {
  return arithmetic == PanelArithmetic::floats ? 1 : arithmetic == PanelArithmetic::bytes ? 4 : 2;
}

}  // namespace

NumberRows number_rows(const at::Tensor& matrix, int64_t first) {
  const auto* const data = static_cast<const char*>(matrix.const_data_ptr());
  return {data + first * matrix.stride(0) * matrix.element_size(), matrix.scalar_type(), matrix.stride(0)};
}

RowWords::RowWords(PanelArithmetic arithmetic, const ColumnGroups& groups, int64_t most_rows, int zero_point, bool needs_terms)
    : arithmetic_(arithmetic),
      groups_(groups),
      columns_per_word_(columns_per_word_of(arithmetic)),
      zero_point_(zero_point),
      needs_terms_(needs_terms),
      words_(new uint32_t[static_cast<size_t>(most_rows * groups.padded / columns_per_word_)]),
      terms_(static_cast<size_t>(most_rows * groups.groups)),
      scales_(terms_.size()),
      starts_(terms_.size()),
      least_exponents_(static_cast<size_t>(groups.groups)) {}

void RowWords::read(const PanelKernels& kernels, const NumberRows& from, int64_t rows) {
  constexpr int64_t kGrain = 1 << 15;
  rows_ = rows;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, groups_.columns));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t g = 0; g < groups_.groups; ++g) {
        if (from.dtype == at::kFloat) read_group<float>(from, row, g);
        else if (from.dtype == at::kBFloat16) read_group<c10::BFloat16>(from, row, g);
        else read_group<c10::Half>(from, row, g);
      }
    }
  });
  if (arithmetic_ != PanelArithmetic::pairs) return;
  at::parallel_for(0, groups_.groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g)
      least_exponents_[static_cast<size_t>(g)] = kernels.least_exponent(words_of(g), rows * steps_of(g));
  });
}

template <class T>
void RowWords::read_group(const NumberRows& from, int64_t row, int64_t g) {
  const int64_t first = g * groups_.group, padded = groups_.columns_of(g), count = std::min(padded, groups_.columns - first);
  const T* const numbers = static_cast<const T*>(from.data) + row * from.row_stride + first;
  float wide[kMostColumns];
  for (int64_t i = 0; i < count; ++i) wide[i] = static_cast<float>(numbers[i]);
  std::fill(wide + count, wide + padded, 0.0F);
  if (arithmetic_ == PanelArithmetic::bytes) return write_bytes(wide, row, g);
  if (needs_terms_) terms_[static_cast<size_t>(g * rows_ + row)] = sum_in_lanes(wide, padded);
  if (arithmetic_ == PanelArithmetic::floats) return write_floats(wide, row, g);
  // Two bf16 in memory are a word.
  uint32_t* const to = words_at(row, g);
  if (count < padded) std::fill_n(to, padded / 2, 0);
  std::memcpy(to, numbers, static_cast<size_t>(count) * sizeof(T));
}

void RowWords::write_floats(const float* numbers, int64_t row, int64_t g) {
  uint32_t* const to = words_at(row, g);
  for (int64_t i = 0; i < groups_.columns_of(g); i += 2) {
    to[i] = std::bit_cast<uint32_t>(numbers[i + 1]);
    to[i + 1] = std::bit_cast<uint32_t>(numbers[i]);
  }
}

void RowWords::write_bytes(const float* numbers, int64_t row, int64_t g) {
  const int64_t count = groups_.columns_of(g);
  const auto place = static_cast<size_t>(g * rows_ + row);
  const float largest = largest_finite(numbers, count), scale = largest / 127;
  uint32_t* const to = words_at(row, g);
  int32_t sum = 0;
  if (scale > 0) {
    int32_t codes[kMostColumns];
    for (int64_t i = 0; i < count; ++i) codes[i] = rounded(std::clamp(numbers[i] / scale, -127.0F, 127.0F));
    for (int64_t i = 0; i < count; ++i) sum += codes[i];
    for (int64_t i = 0; i < count; i += 4) {
      to[i / 4] = (codes[i] & 255U) | (codes[i + 1] & 255U) << 8 | (codes[i + 2] & 255U) << 16 |
                  static_cast<uint32_t>(codes[i + 3]) << 24;
    }
  } else {
    std::fill(to, to + count / 4, 0);
  }
  scales_[place] = scale;
  starts_[place] = -zero_point_ * sum;
  if (needs_terms_) terms_[place] = scale * static_cast<float>(sum);
}

}  // namespace zt::packed
