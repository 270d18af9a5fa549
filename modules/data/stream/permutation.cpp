#include "permutation.h"

#include <algorithm>
#include <bit>

namespace zt::data {

namespace {

// Fewest bits of the network. With fewer bits it can produce only few of the possible permutations.
constexpr int kLeastBits = 6;
// Four rounds are enough against an adversary (Luby and Rackoff); two more compensate for halves of unequal size.
constexpr int kRounds = 6;

}  // namespace

Permutation::Permutation(int64_t n, Philox key) : n_(static_cast<uint64_t>(n)), key_(key) {
  const int bits = std::max<int>(kLeastBits, std::bit_width(n_ - 1));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

uint64_t Permutation::walk(uint64_t x) const {
  const uint64_t low_mask = (uint64_t{1} << low_bits_) - 1, high_mask = (uint64_t{1} << high_bits_) - 1;
  uint64_t low = x & low_mask, high = x >> low_bits_;
  for (uint64_t round = 0; round < kRounds; round += 2) {
    const auto a = key_.block(round, high);
    low ^= (static_cast<uint64_t>(a[1]) << 32 | a[0]) & low_mask;
    const auto b = key_.block(round + 1, low);
    high ^= (static_cast<uint64_t>(b[1]) << 32 | b[0]) & high_mask;
  }
  return high << low_bits_ | low;
}

int64_t Permutation::operator()(int64_t i) const {
  auto x = static_cast<uint64_t>(i);
  do {
    x = walk(x);
  } while (x >= n_);
  return static_cast<int64_t>(x);
}

}  // namespace zt::data
