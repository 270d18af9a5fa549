// The sums of squares of NORM by ATen operators, for gradients that are not in host memory. Every operator is exact or rounds
// once per element, in the order of norm_squares.cpp, so the bits are the same on every device.
#include <ATen/TensorIndexing.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "execute/norm/norm_squares.h"
#include "zt/execute/gradient_norm.h"

namespace zt {

namespace {

constexpr int64_t kElementsAtOnce = int64_t{4096} * kNormBlock;  // 8 MiB of doubles

// Returns the sum of the squares of each block. blocks: [n, kNormBlock]; the result: float64[n].
at::Tensor block_sums(const at::Tensor& blocks) {
  const at::Tensor squares = blocks.to(at::kDouble).square().view({-1, kNormBlock / kNormLanes, kNormLanes});
  at::Tensor lanes = squares.select(1, 0).clone();
  for (int64_t i = 1; i < kNormBlock / kNormLanes; ++i) lanes.add_(squares.select(1, i));
  for (int64_t half = kNormLanes / 2; half > 0; half /= 2) lanes = lanes.narrow(1, 0, half) + lanes.narrow(1, half, half);
  return lanes.squeeze(1);
}

// Adds sums of squares, float64[n], to the words of an ExactSum, as ExactSum::add.
void add_sums(const at::Tensor& sums, const at::Tensor& words) {
  constexpr int64_t kLow = 0xFFFFFFFF;
  const at::Tensor bits = sums.view(at::kLong);
  const at::Tensor exponent = bits.bitwise_right_shift(52).bitwise_and(0x7FF);
  const at::Tensor fraction = bits.bitwise_and(0xFFFFFFFFFFFFF);
  const at::Tensor significand =
      at::where(exponent == 0x7FF, 0, at::where(exponent == 0, fraction, fraction + (int64_t{1} << 52)));
  const at::Tensor shift = at::where(exponent == 0x7FF, 0, (exponent - 1).clamp_min(0));
  const at::Tensor bits_of_limb = shift.bitwise_and(31), limb = shift.bitwise_right_shift(5);
  const at::Tensor low = significand.bitwise_and(kLow).bitwise_left_shift(bits_of_limb);
  const at::Tensor high = significand.bitwise_right_shift(32).bitwise_left_shift(bits_of_limb);
  words.index_add_(0, limb, low.bitwise_and(kLow));
  words.index_add_(0, limb + 1, low.bitwise_right_shift(32) + high.bitwise_and(kLow));
  words.index_add_(0, limb + 2, high.bitwise_right_shift(32));
  words[ExactSum::kNan] += sums.isnan().sum();
  words[ExactSum::kPlusInf] += (sums == std::numeric_limits<double>::infinity()).sum();
}

}  // namespace

at::Tensor squares_on_device(const at::Tensor& flat, int64_t begin, int64_t end) {
  check_squares(flat, begin, end);
  const at::Tensor words = at::zeros({ExactSum::kWords}, flat.options().dtype(at::kLong));
  while (begin < end) {
    const int64_t first = begin / kNormBlock * kNormBlock, stop = std::min(end, first + kElementsAtOnce);
    const int64_t after = (stop + kNormBlock - 1) / kNormBlock * kNormBlock - stop;
    at::Tensor part = flat.slice(0, begin, stop);
    if (begin > first || after > 0) part = at::constant_pad_nd(part, {begin - first, after});
    add_sums(block_sums(part.view({-1, kNormBlock})), words);
    begin = stop;
  }
  return words;
}

}  // namespace zt
