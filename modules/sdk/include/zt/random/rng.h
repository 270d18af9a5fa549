// Counter-based random numbers: a value is a pure function of a key and a counter, so any rank can make any part.
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3. SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "zt/base/isa.h"

namespace zt {

// Streams with different purposes never share numbers.
enum class Purpose : uint32_t { init = 0, dropout = 1, shuffle = 2, sample = 3, user = 4 };

class Philox {
 public:
  using Block = std::array<uint32_t, 4>;

  explicit Philox(uint64_t key) : key_(key) {}
  // The key of a stream: folds (seed, purpose, a, b) by Philox itself.
  static Philox keyed(uint64_t seed, Purpose purpose, uint64_t a = 0, uint64_t b = 0);

  // Four independent 32-bit numbers for the 128-bit counter (high, low).
  Block block(uint64_t high, uint64_t low) const;

  // Element i of row `row`: block(row, i / 4)[i % 4]. uniform is in [0, 1), a multiple of 2^-24.
  // Fills out[j] for elements first + j; first is at least 0.
  void uniform(uint64_t row, int64_t first, std::span<float> out, Isa isa = best_isa()) const;
  // Standard normal by Box-Muller from the block (row, i / 2), whose words make two uniforms of 53 bits: element i is the cosine
  // (even) or sine (odd) branch. Computed in double by polynomials, whose relative error is below 10 * 2^-53: every processor and
  // instruction set makes the same bits.
  void normal(uint64_t row, int64_t first, std::span<double> out, Isa isa = best_isa()) const;

  uint64_t key() const { return key_; }

 private:
  uint64_t key_;
};

}  // namespace zt
