#include "zt/random/rng.h"

#include "philox_rounds.h"

namespace zt {

Philox::Block Philox::block(uint64_t high, uint64_t low) const {
  uint64_t word[4] = {low, low >> 32, high, high >> 32};
  philox_rounds(word, key_);
  return {static_cast<uint32_t>(word[0]), static_cast<uint32_t>(word[1]), static_cast<uint32_t>(word[2]),
          static_cast<uint32_t>(word[3])};
}

Philox Philox::keyed(uint64_t seed, Purpose purpose, uint64_t a, uint64_t b) {
  const Block first = Philox(seed).block(static_cast<uint64_t>(purpose), a);
  const uint64_t folded = static_cast<uint64_t>(first[1]) << 32 | first[0];
  const Block second = Philox(folded).block(0x7A74, b);
  return Philox(static_cast<uint64_t>(second[1]) << 32 | second[0]);
}

}  // namespace zt
