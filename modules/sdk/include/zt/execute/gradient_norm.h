// The exact gradient norm: a sum of squares whose bits do not depend on how the elements are cut over ranks, buckets or
// calls. Squares are summed per block of 256 elements in a fixed order; block sums go into an exact accumulator.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "zt/base/isa.h"
#include "zt/execute/exact_words.h"

namespace zt {

// A sum of doubles without rounding: a fixed-point number of 32-bit limbs that covers the whole range of double, held in
// 64-bit integers so that additions need no carry. The order of additions does not matter.
//
// Invariants: (1) the sum is limb[i] * 2^(32 i - 1074) summed over i; (2) every limb but the last is below 2^33 * pending_
// in absolute value, so none overflows before carries are propagated.
// Threads: not synchronised, like an int.
class ExactSum {
 public:
  void add(double x) {
    add_exactly(x, [this](int word, int64_t amount) { words_[word] += amount; });
    if (++pending_ == kMaxPending) propagate();
  }
  // Adds the other sum, exactly.
  void merge(const ExactSum& other);

  // Returns the sum, rounded once to nearest even. It is NaN if a NaN or infinities of both signs were added, and an infinity if
  // infinities of one sign were.
  double value() const;
  // Returns whether neither an infinity nor a NaN was added.
  bool is_finite() const;

  // The state as an int64 tensor [ExactWords::kCount]: limbs, then counts of NaN, +inf and -inf. Up to 2^30 states may be added
  // elementwise, as an all_reduce over ranks does, and the result is the state of the sum of all.
  at::Tensor state() const;
  // Throws Misuse unless `state` is a contiguous int64[ExactWords::kCount] on the CPU.
  static ExactSum from_state(const at::Tensor& state);

 private:
  static constexpr int64_t kMaxPending = 1 << 29;

  void propagate();

  std::array<int64_t, ExactWords::kCount> words_{};
  int64_t pending_ = 0;
};

// Adds the squares of elements [begin, end) of `flat` ([n], contiguous, CPU; float32, float64, bfloat16 or float16) to `sum`.
// Blocks are aligned to multiples of 256 of the index into `flat`, and elements outside the range count as zeros. So ranges that
// end at multiples of 256 add up to the same bits as the whole. Squares are computed in double, which is exact except for
// float64, where a square above the range of double counts as infinite. An infinite or NaN element makes sum.is_finite() false.
// Throws Misuse for another kind of tensor or a range outside of it.
void add_squares(const at::Tensor& flat, int64_t begin, int64_t end, ExactSum& sum, Isa isa = best_isa());

// As add_squares with the same bits, for a buffer on CUDA, where the result stays: words that ExactSum::from_state reads,
// int64[ExactWords::kCount]. The words of up to 2^37 elements in all may be added elementwise. Throws Misuse for other devices,
// and in a build without CUDA code.
at::Tensor squares_on_device(const at::Tensor& flat, int64_t begin, int64_t end);

}  // namespace zt
