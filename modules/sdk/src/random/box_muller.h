// Box-Muller in arithmetic that every processor rounds alike: no function of libm but the square root, which IEEE 754 rounds.
// Written for one pair without branches, so that a loop over pairs becomes vector instructions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace zt::box_muller {

constexpr uint64_t kTwo52Bits = 0x4330000000000000;  // of 2^52: an integer below 2^52 is OR'ed in to become a double

// An integer below 2^53, exactly: its halves become doubles.
[[gnu::always_inline]] inline double exact_double(uint64_t n) {
  constexpr uint64_t kTwo84Bits = 0x4530000000000000;
  const double high = std::bit_cast<double>(kTwo84Bits | n >> 32), low = std::bit_cast<double>(kTwo52Bits | (n & 0xFFFFFFFF));
  return (high - (0x1p84 + 0x1p52)) + low;
}

// c0 + c1 x + c2 x^2 + ...
[[gnu::always_inline]] inline double polynomial(double, double c0) {
  return c0;
}
template <class... Rest>
[[gnu::always_inline]] inline double polynomial(double x, double c0, Rest... rest) {
  return c0 + x * polynomial(x, rest...);
}

// log(n / 2^53) for n = 1 .. 2^53, relative error below 6.5 * 2^-53. With n = 2^k m, sqrt(1/2) <= m < sqrt(2), it is
// (k - 53) log(2) + log(m), and log(m) = 2 (s + s^3 / 3 + s^5 / 5 ...), s = (m - 1) / (m + 1), |s| < 0.1716: what is left out
// after s^19 is below 2^-55 of the sum. Rounding makes 4.4 units of 2^-53 in log(m), the other term and the sum 1.6 more.
[[gnu::always_inline]] inline double log_of_part(double n) {
  constexpr uint64_t kRootBits = std::bit_cast<uint64_t>(std::numbers::sqrt2 / 2);
  const uint64_t bits = std::bit_cast<uint64_t>(n), k = (bits - kRootBits) >> 52;
  const double m = std::bit_cast<double>(bits - (k << 52));
  const double s = (m - 1) / (m + 1), z = s * s, w = z * z;
  // In two halves, as a chain of ten steps would keep the processor waiting.
  const double even = polynomial(w, 2.0 / 3, 2.0 / 7, 2.0 / 11, 2.0 / 15, 2.0 / 19);
  const double odd = polynomial(w, 2.0 / 5, 2.0 / 9, 2.0 / 13, 2.0 / 17);
  const double exponent = std::bit_cast<double>(kTwo52Bits | k) - (0x1p52 + 53);
  return exponent * std::numbers::ln2 + s * ((even + odd * z) * z + 2.0);
}

// Taylor series for |t| <= pi / 4 and z = t^2: what is left out is below 2^-53 of the sum.
[[gnu::always_inline]] inline double sine(double t, double z) {
  return t + t * (z * polynomial(z, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800,
                                 -1.0 / 1307674368000));
}
[[gnu::always_inline]] inline double cosine(double z) {
  return polynomial(z, 1.0, -0.5, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200,
                    1.0 / 20922789888000);
}

// radius * cos(angle) and radius * sin(angle) with radius = sqrt(-2 log((a + 1) / 2^53)) and angle = 2 pi b / 2^53, for a and b
// below 2^53. The angle is cut to the nearest quarter turn and a rest of at most an eighth in integers, hence exactly: zeros of
// the sine and the cosine keep their relative error. In units of 2^-53 that is 4.3 of the radius (half of the logarithm's and a
// rounding), 4 of the sine or cosine (1.5 of t = 2 pi rest, the series and its sum) and 1 of the product: below 10.
[[gnu::always_inline]] inline void pair(uint64_t a, uint64_t b, double& even, double& odd) {
  constexpr uint64_t kQuarter = uint64_t{1} << 51;
  constexpr double kCentre = 0x1.8p52;  // an integer of 51 bits and a sign is added to its bits
  const double radius = std::sqrt(-2.0 * log_of_part(exact_double(a) + 1.0));
  const uint64_t quarters = (b + kQuarter / 2) / kQuarter, rest = b - quarters * kQuarter;
  const double t = (std::bit_cast<double>(std::bit_cast<uint64_t>(kCentre) + rest) - kCentre) * (std::numbers::pi * 0x1p-52);
  const double z = t * t;
  const auto c = std::bit_cast<uint64_t>(cosine(z)), s = std::bit_cast<uint64_t>(sine(t, z));
  const uint64_t swapped = (c ^ s) & -(quarters & 1);
  const uint64_t cosine_sign = ((quarters + 1) & 2) << 62, sine_sign = (quarters & 2) << 62;
  even = radius * std::bit_cast<double>((c ^ swapped) ^ cosine_sign);
  odd = radius * std::bit_cast<double>((s ^ swapped) ^ sine_sign);
}

}  // namespace zt::box_muller
