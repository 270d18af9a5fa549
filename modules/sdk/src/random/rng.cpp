#include "zt/random/rng.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <utility>

#include "box_muller.h"

namespace zt {

namespace {

// Multiplies the low 32 bits of every number of x by `multiplier`, for a 64-bit number x or a vector of these. x86 has one
// instruction for a vector, which the compiler does not select by itself, hence the builtins. -Wpsabi warns about passing vectors
// by value; here everything is inlined, so no vector is passed.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
template <class Lanes>
[[gnu::always_inline]] inline void multiply_low(const Lanes& x, uint32_t multiplier, Lanes& product) {
#if defined(__x86_64__) && !defined(__clang__)
  const Lanes y = Lanes{} + multiplier;
  if constexpr (sizeof(Lanes) == 64) {
    product = (Lanes)__builtin_ia32_pmuludq512_mask((__v16si)x, (__v16si)y, __v8di{}, 0xFF);
  } else if constexpr (sizeof(Lanes) == 32) {
    product = (Lanes)__builtin_ia32_pmuludq256((__v8si)x, (__v8si)y);
  } else if constexpr (sizeof(Lanes) == 16) {
    product = (Lanes)__builtin_ia32_pmuludq128((__v4si)x, (__v4si)y);
  } else {
    product = (x & 0xFFFFFFFF) * multiplier;
  }
#else
  product = (x & 0xFFFFFFFF) * multiplier;
#endif
}
#pragma GCC diagnostic pop

// Replaces the counter in `word` by its block. word[i] holds word i in the low 32 bits of each 64-bit number. Ignore the high 32
// bits, before and after the call.
template <class Lanes>
[[gnu::always_inline]] inline void philox_rounds(Lanes (&word)[4], uint64_t key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round, k0 += kWeyl0, k1 += kWeyl1) {
    Lanes p0, p1;
    multiply_low(word[0], kMultiplier0, p0);
    multiply_low(word[2], kMultiplier1, p1);
    word[0] = (p1 >> 32) ^ word[1] ^ k0;
    word[1] = p1;
    word[2] = (p0 >> 32) ^ word[3] ^ k1;
    word[3] = p0;
  }
}

// The loops below are written once and compiled for each instruction set.
constexpr int kBatch = 32;  // counters per batch

template <int kWidth>
using Words = Vector<uint64_t, kWidth>;

struct PhiloxStream {
  uint64_t key, row;
};

// Makes the blocks of the counters (row, counter), (row, counter + 1), ...: words 0 and 1 go to `low`, words 2 and 3 to `high`.
template <int kWidth>
[[gnu::always_inline]] inline void blocks(const PhiloxStream& stream, uint64_t counter, Words<kWidth>& low, Words<kWidth>& high) {
  Words<kWidth> lane;
  for (int i = 0; i < kWidth; ++i) lane[i] = i;
  const Words<kWidth> counters = lane + counter, row = Words<kWidth>{} + stream.row;
  Words<kWidth> word[4] = {counters, counters >> 32, row, row >> 32};
  philox_rounds(word, stream.key);
  low = (word[0] & 0xFFFFFFFF) | word[1] << 32;
  high = (word[2] & 0xFFFFFFFF) | word[3] << 32;
}

// Stores 2 * kWidth uniform numbers, made from the 32-bit words of `pairs` in the order of memory.
template <int kWidth>
[[gnu::always_inline]] inline void store_uniform(const Words<kWidth>& pairs, float* out) {
  Vector<int32_t, 2 * kWidth> numbers;
  const Words<kWidth> upper = (pairs >> 8) & 0x00FFFFFF00FFFFFF;
  std::memcpy(&numbers, &upper, sizeof(numbers));
  const auto uniform = __builtin_convertvector(numbers, Vector<float, 2 * kWidth>) * 0x1p-24F;
  std::memcpy(out, &uniform, sizeof(uniform));
}

// Interleaves the lanes: a[0], b[0], a[1], b[1], ... go to a, then to b.
template <int kWidth, int... kIndex>
[[gnu::always_inline]] inline void interleave(Words<kWidth>& a, Words<kWidth>& b, std::integer_sequence<int, kIndex...>) {
  constexpr int kHalf = kWidth / 2;
  const Words<kWidth> first = __builtin_shufflevector(a, b, (kIndex / 2 + kIndex % 2 * kWidth)...);
  b = __builtin_shufflevector(a, b, (kIndex / 2 + kIndex % 2 * kWidth + kHalf)...);
  a = first;
}

// Makes 4 * kBatch uniform numbers.
template <int kWidth>
[[gnu::always_inline]] inline void fill_batch(const PhiloxStream& stream, uint64_t counter, float* out) {
  for (int i = 0; i < kBatch; i += kWidth, out += 4 * kWidth) {
    Words<kWidth> low, high;
    blocks<kWidth>(stream, counter + i, low, high);
    interleave<kWidth>(low, high, std::make_integer_sequence<int, kWidth>());
    store_uniform<kWidth>(low, out);
    store_uniform<kWidth>(high, out + 2 * kWidth);
  }
}

// Makes 2 * kBatch normal numbers.
template <int kWidth>
[[gnu::always_inline]] inline void fill_batch(const PhiloxStream& stream, uint64_t counter, double* out) {
  alignas(64) uint64_t a[kBatch], b[kBatch];  // 53-bit uniforms
  for (int i = 0; i < kBatch; i += kWidth) {
    Words<kWidth> low, high;
    blocks<kWidth>(stream, counter + i, low, high);
    low >>= 11;
    high >>= 11;
    std::memcpy(a + i, &low, sizeof(low));
    std::memcpy(b + i, &high, sizeof(high));
  }
  for (int i = 0; i < kBatch; ++i) box_muller::pair(a[i], b[i], out[2 * i], out[2 * i + 1]);
}

// Writes whole batches directly. A part that starts inside the numbers of a counter, or that is shorter than a batch, is made in
// a temporary batch and copied.
template <int kWidth, class T>
[[gnu::always_inline]] inline void fill(const PhiloxStream& stream, uint64_t first, T* out, size_t count) {
  constexpr size_t kPerCounter = 16 / sizeof(T), kLength = kBatch * kPerCounter;
  while (count > 0) {
    const size_t skipped = first % kPerCounter, made = std::min(count, kLength - skipped);
    if (made == kLength) {
      fill_batch<kWidth>(stream, first / kPerCounter, out);
    } else {
      alignas(64) T batch[kLength];
      fill_batch<kWidth>(stream, first / kPerCounter, batch);
      std::memcpy(out, batch + skipped, made * sizeof(T));
    }
    first += made;
    out += made;
    count -= made;
  }
}

// The number of counters that are computed together.
template <int count>
using Counters = std::integral_constant<int, count>;

template <class T>
void fill_with(Isa isa, const PhiloxStream& stream, int64_t first, std::span<T> out) {
  const auto element = static_cast<uint64_t>(first);
  run_as<Counters<2>, Counters<4>, Counters<8>>(
      isa, [=]<class F>(F) __attribute__((always_inline)) { fill<F::value>(stream, element, out.data(), out.size()); });
}

}  // namespace

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

void Philox::uniform(uint64_t row, int64_t first, std::span<float> out, Isa isa) const {
  fill_with(isa, {key_, row}, first, out);
}

void Philox::normal(uint64_t row, int64_t first, std::span<double> out, Isa isa) const {
  fill_with(isa, {key_, row}, first, out);
}

}  // namespace zt
