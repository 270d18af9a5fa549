// Shuffling without memory: a pseudo-random permutation of 0 .. n-1 that computes each value when it is needed.
#pragma once

#include <cstdint>

#include "zt/random/rng.h"

namespace zt::data {

// A Feistel network (Luby and Rackoff 1988) over the next power of two, with Philox as its round function. A result outside 0 ..
// n-1 is the input of another pass, until a result lies inside ("cycle walking", Black and Rogaway: Ciphers with arbitrary finite
// domains, 2002). A bijection for every key. One value costs well under a microsecond for n >= 32. Threads: any.
class Permutation {
 public:
  // Requires n >= 1.
  Permutation(int64_t n, Philox key);

  // Returns the value at index `i`. Requires 0 <= i < n.
  int64_t operator()(int64_t i) const;

 private:
  uint64_t walk(uint64_t x) const;

  uint64_t n_;
  Philox key_;
  int low_bits_, high_bits_;
};

}  // namespace zt::data
