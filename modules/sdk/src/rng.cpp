#include "zt/rng.h"

#include <cmath>
#include <numbers>

namespace zt {

namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

}  // namespace

Philox::Block Philox::block(uint64_t high, uint64_t low) const {
  Block c{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
          static_cast<uint32_t>(high >> 32)};
  auto k0 = static_cast<uint32_t>(key_), k1 = static_cast<uint32_t>(key_ >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1), static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1,
         static_cast<uint32_t>(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

Philox Philox::keyed(uint64_t seed, Purpose purpose, uint64_t a, uint64_t b) {
  const Block first = Philox(seed).block(static_cast<uint64_t>(purpose), a);
  const uint64_t folded = static_cast<uint64_t>(first[1]) << 32 | first[0];
  const Block second = Philox(folded).block(0x7A74, b);
  return Philox(static_cast<uint64_t>(second[1]) << 32 | second[0]);
}

void Philox::uniform(uint64_t row, int64_t first, std::span<float> out) const {
  Block numbers{};
  int64_t held = -1;
  for (size_t j = 0; j < out.size(); ++j) {
    const int64_t i = first + static_cast<int64_t>(j);
    if (i / 4 != held) {
      held = i / 4;
      numbers = block(row, static_cast<uint64_t>(held));
    }
    out[j] = static_cast<float>(numbers[i % 4] >> 8) * 0x1p-24F;
  }
}

void Philox::normal(uint64_t row, int64_t first, std::span<double> out) const {
  for (size_t j = 0; j < out.size(); ++j) {
    const int64_t i = first + static_cast<int64_t>(j);
    const Block numbers = block(row, static_cast<uint64_t>(i / 2));
    // 53-bit uniforms; the first is in (0, 1] so that its logarithm is finite.
    const uint64_t a = (static_cast<uint64_t>(numbers[1]) << 32 | numbers[0]) >> 11;
    const uint64_t b = (static_cast<uint64_t>(numbers[3]) << 32 | numbers[2]) >> 11;
    const double radius = std::sqrt(-2.0 * std::log(static_cast<double>(a + 1) * 0x1p-53));
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(b) * 0x1p-53;
    out[j] = radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
  }
}

uint64_t stable_hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace zt
