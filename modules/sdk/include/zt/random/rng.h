// Counter-based random numbers: a value is a pure function of a key and a counter, so any rank can make any part of a tensor.
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3. SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "zt/base/isa.h"

namespace zt {

// Streams with different purposes never share numbers.
enum class Purpose : uint32_t { init = 0, dropout = 1, shuffle = 2, sample = 3, user = 4, routing = 5 };

// A stream of random numbers, arranged in rows. Plain data; thread-safe.
class Philox {
 public:
  using Block = std::array<uint32_t, 4>;

  explicit Philox(uint64_t key) : key_(key) {}
  // Returns the stream of (seed, purpose, a, b). Its key is a Philox hash of the four numbers.
  static Philox keyed(uint64_t seed, Purpose purpose, uint64_t a = 0, uint64_t b = 0);

  // Returns four independent 32-bit numbers for the 128-bit counter (high, low).
  Block block(uint64_t high, uint64_t low) const;

  // Fills out[j] with the uniform number of element first + j of the row: a multiple of 2^-24 in [0, 1). Element i is made from
  // block(row, i / 4)[i % 4]. `first` must be at least 0.
  void uniform(uint64_t row, int64_t first, std::span<float> out, Isa isa = best_isa()) const;
  // Fills out[j] with the standard normal number of element first + j of the row. Element i is made by Box-Muller from
  // block(row, i / 2), whose words give two uniforms of 53 bits: an even i takes the cosine branch, an odd i the sine branch. The
  // relative error is below 10 * 2^-53. The computation uses polynomials in double, so every processor and instruction set makes
  // the same bits. `first` must be at least 0.
  void normal(uint64_t row, int64_t first, std::span<double> out, Isa isa = best_isa()) const;

  uint64_t key() const { return key_; }

 private:
  uint64_t key_;
};

}  // namespace zt
