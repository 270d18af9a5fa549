#include "packed/quantize.h"

#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace zt::packed {

namespace {

constexpr float kLargestHalf = 65504, kSmallestHalf = 0x1p-24F;

struct CodeRange {
  float least, most;
};

float as_half(double number) {
  return static_cast<float>(static_cast<c10::Half>(static_cast<float>(number)));
}

// Returns the smallest positive fp16 that is at least `number`. Infinity if there is none.
float half_above(double number) {
  const float nearest = std::max(as_half(number), kSmallestHalf);
  if (nearest >= number) return nearest;
  const c10::Half half = static_cast<c10::Half>(nearest);
  return static_cast<float>(c10::Half(static_cast<uint16_t>(half.x + 1), c10::Half::from_bits()));
}

// The best result so far for the numbers of a group.
class GroupSearch {
 public:
  GroupSearch(const float* numbers, int64_t count, CodeRange range, QuantizedGroup& best)
      : numbers_(numbers), count_(count), range_(range), best_(best) {}

  bool found() const { return best_error_ < std::numeric_limits<double>::infinity(); }

  // Tries numbers of fp16.
  void attempt(float scale, float minimum) {
    if (scale == 0 || std::abs(scale) > kLargestHalf || std::abs(minimum) > kLargestHalf) return;
    QuantizedGroup group{scale, minimum, {}};
    double error = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const double code = code_of(numbers_[i], scale, minimum);
      group.codes[i] = static_cast<int8_t>(code);
      const double miss = numbers_[i] - (double{scale} * code + double{minimum});
      error += miss * miss;
    }
    if (!(error < best_error_)) return;
    best_error_ = error;
    best_ = group;
  }

  // Tries a scale without minimum, and the one that fits the codes of this one best.
  void attempt_fitted(double scale) {
    if (scale == 0) return;
    double cross = 0, square = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const double code = code_of(numbers_[i], scale, 0);
      cross += double{numbers_[i]} * code;
      square += code * code;
    }
    if (square > 0) attempt(as_half(cross / square), 0);
  }

  // Tries the scale and minimum that fit the codes of these ones best.
  void attempt_fitted(double scale, double minimum) {
    if (scale == 0) return;
    double sum = 0, codes = 0, cross = 0, square = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const double code = code_of(numbers_[i], scale, minimum);
      sum += numbers_[i];
      codes += code;
      cross += double{numbers_[i]} * code;
      square += code * code;
    }
    const auto n = static_cast<double>(count_);
    const double spread = n * square - codes * codes;
    if (spread <= 0) return;
    const double slope = (n * cross - codes * sum) / spread;
    attempt(as_half(slope), as_half((sum - slope * codes) / n));
  }

 private:
  double code_of(float number, double scale, double minimum) const {
    constexpr double kShift = 0x1.8p52;  // the sum's last bit is worth 1, so the addition rounds to an integer, ties to even
    return (std::clamp<double>((number - minimum) / scale, range_.least, range_.most) + kShift) - kShift;
  }

  const float* const numbers_;
  const int64_t count_;
  const CodeRange range_;
  QuantizedGroup& best_;
  double best_error_ = std::numeric_limits<double>::infinity();
};

float largest_absolute(const float* numbers, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(numbers[i]));
  return largest;
}

}  // namespace

bool quantize_int8(const float* numbers, int64_t count, QuantizedGroup& group) {
  group = {};
  const double largest = largest_absolute(numbers, count);
  if (largest == 0) return true;
  GroupSearch search(numbers, count, {-127, 127}, group);
  search.attempt(half_above(largest / 127), 0);
  for (const double most : {126.5, 127.0, 127.5, 128.5, 130.0}) search.attempt_fitted(largest / most);
  return search.found();
}

// The number with the largest absolute value gets code 7 or -8, so scales of both signs are tried.
bool quantize_int4_symmetric(const float* numbers, int64_t count, QuantizedGroup& group) {
  group = {};
  const double largest = largest_absolute(numbers, count);
  if (largest == 0) return true;
  GroupSearch search(numbers, count, {-8, 7}, group);
  search.attempt(half_above(largest / 7), 0);
  for (const double most : {7.0, 7.5, 8.0, 8.5, 9.5}) {
    search.attempt_fitted(largest / most);
    search.attempt_fitted(-largest / most);
  }
  return search.found();
}

bool quantize_int4(const float* numbers, int64_t count, QuantizedGroup& group) {
  group = {};
  const auto [least, most] = std::minmax_element(numbers, numbers + count);
  if (*least == 0 && *most == 0) return true;
  const double width = double{*most} - double{*least};
  GroupSearch search(numbers, count, {0, 15}, group);
  // The fp16 below the least number is the start of a range in which no number is cut off.
  const float below = *least < 0 ? -half_above(-double{*least}) : as_half(*least);
  search.attempt(half_above((double{*most} - double{below}) / 15), below);
  search.attempt(kSmallestHalf, as_half(*least));
  for (const double cut : {0.0, 0.02, 0.04, 0.07, 0.1})
    search.attempt_fitted(width * (1 - 2 * cut) / 15, double{*least} + width * cut);
  return search.found();
}

}  // namespace zt::packed
