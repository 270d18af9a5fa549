// Box-Muller in arithmetic that every processor rounds in the same way. Of libm it uses only the square root, whose rounding
// IEEE 754 defines. The code for one pair has no branches, so that the compiler vectorizes a loop over pairs.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace zt::box_muller {

constexpr uint64_t kTwo52Bits = 0x4330000000000000;  // the bits of 2^52: OR with an integer n below 2^52 gives 2^52 + n

// Returns n, below 2^53, as a double without rounding. Converts its 32-bit halves separately.
[[gnu::always_inline]] inline double exact_double(uint64_t n) {
  constexpr uint64_t kTwo84Bits = 0x4530000000000000;
  const double high = std::bit_cast<double>(kTwo84Bits | n >> 32), low = std::bit_cast<double>(kTwo52Bits | (n & 0xFFFFFFFF));
  return (high - (0x1p84 + 0x1p52)) + low;
}

// Returns c0 + c1 x + c2 x^2 + ...
[[gnu::always_inline]] inline double polynomial(double, double c0) {
  return c0;
}
template <class... Rest>
[[gnu::always_inline]] inline double polynomial(double x, double c0, Rest... rest) {
  return c0 + x * polynomial(x, rest...);
}

// Returns log(n / 2^53) for n = 1 .. 2^53 with a relative error below 6.5 * 2^-53. With n = 2^k m and sqrt(1/2) <= m < sqrt(2)
// this is (k - 53) log(2) + log(m), where log(m) = 2 (s + s^3 / 3 + s^5 / 5 ...), s = (m - 1) / (m + 1) and |s| < 0.1716. The
// terms after s^19, which are left out, are below 2^-55 of the sum. Rounding errors are 4.4 units of 2^-53 in log(m), and 1.6
// more in the other term and the sum.
[[gnu::always_inline]] inline double log_of_part(double n) {
  constexpr uint64_t kRootBits = std::bit_cast<uint64_t>(std::numbers::sqrt2 / 2);
  const uint64_t bits = std::bit_cast<uint64_t>(n), k = (bits - kRootBits) >> 52;
  const double m = std::bit_cast<double>(bits - (k << 52));
  const double s = (m - 1) / (m + 1), z = s * s, w = z * z;
  // Two independent polynomials: a chain of ten dependent steps would stall the processor.
  const double even = polynomial(w, 2.0 / 3, 2.0 / 7, 2.0 / 11, 2.0 / 15, 2.0 / 19);
  const double odd = polynomial(w, 2.0 / 5, 2.0 / 9, 2.0 / 13, 2.0 / 17);
  const double exponent = std::bit_cast<double>(kTwo52Bits | k) - (0x1p52 + 53);
  return exponent * std::numbers::ln2 + s * ((even + odd * z) * z + 2.0);
}

// Taylor series for |t| <= pi / 4 and z = t^2. The terms left out are below 2^-53 of the sum.
[[gnu::always_inline]] inline double sine(double t, double z) {
  return t + t * (z * polynomial(z, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800,
                                 -1.0 / 1307674368000));
}
[[gnu::always_inline]] inline double cosine(double z) {
  return polynomial(z, 1.0, -0.5, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200,
                    1.0 / 20922789888000);
}

// Writes radius * cos(angle) to `even` and radius * sin(angle) to `odd`, with radius = sqrt(-2 log((a + 1) / 2^53)) and
// angle = 2 pi b / 2^53, for a and b below 2^53. The angle is split into the nearest quarter turn and a rest of at most an eighth
// turn. This is done in integers, so it is exact: the relative error stays bounded near zeros of the sine and the cosine. In
// units of 2^-53 the error is 4.3 in the radius (half of the logarithm's, and one rounding), 4 in the sine or cosine (1.5 in t =
// 2 pi rest, the series and its sum) and 1 in the product: below 10.
[[gnu::always_inline]] inline void pair(uint64_t a, uint64_t b, double& even, double& odd) {
  constexpr uint64_t kQuarter = uint64_t{1} << 51;
  constexpr double kCentre = 0x1.8p52;  // adding an integer of 51 bits and a sign to its bits adds the integer to the double
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
