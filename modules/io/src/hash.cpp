#include "zt/io/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace zt::io {

struct Hash::State {
  XXH3_state_t state;
};

uint64_t xxh3(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Hash::Hash() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->state);
}

Hash::~Hash() = default;

void Hash::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->state, bytes.data(), bytes.size());
}

uint64_t Hash::value() const {
  return XXH3_64bits_digest(&state_->state);
}

}  // namespace zt::io
