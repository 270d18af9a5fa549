#include "compress/codec.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "zt/base/error.h"
#include "zt/base/isa.h"
#include "zt/base/tensor.h"

namespace zt::zero {

Codec::~Codec() = default;

namespace {

struct SameCode {};  // the same source for each instruction set

// `Block` has kCodeBytes, and static functions that code one block: scale_of(x), put(x, scale, codes), which leaves in x what the
// codes lack, and add(codes, scale, x). They are compiled once per instruction set, with equal bits.
template <class Block>
class BlockCodec final : public Codec {
 public:
  int64_t block_bytes() const override { return Block::kCodeBytes + static_cast<int64_t>(sizeof(float)); }

  void encode(const at::Tensor& values, const at::Tensor& bytes, Isa isa) const override {
    for_each_block(
        values, bytes, isa, [](auto* x, uint8_t* codes) __attribute__((always_inline)) {
          const float scale = Block::scale_of(x);
          std::memcpy(codes + Block::kCodeBytes, &scale, sizeof(scale));
          Block::put(x, scale, codes);
        });
  }

  void decode_add(const at::Tensor& bytes, const at::Tensor& values, Isa isa) const override {
    for_each_block(
        values, bytes, isa, [](auto* x, const uint8_t* codes) __attribute__((always_inline)) {
          float scale;
          std::memcpy(&scale, codes + Block::kCodeBytes, sizeof(scale));
          Block::add(codes, scale, x);
        });
  }

 private:
  template <class Each>
  void for_each_block(const at::Tensor& values, const at::Tensor& bytes, Isa isa, const Each& each) const {
    const int64_t blocks = values.numel() / kCodeBlock;
    if (!is_for_host(values))
      misuse("codes of gradients are made on the CPU, and the gradients are on {}: use powersgd", values.device().str());
    if (values.numel() % kCodeBlock != 0 || bytes.numel() != blocks * block_bytes())
      misuse("{} numbers have {} bytes of codes: give whole blocks", values.numel(), bytes.numel());
    if (blocks == 0) return;
    auto* codes = bytes.mutable_data_ptr<uint8_t>();
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "codes", [&] {
      scalar_t* const x = values.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, blocks, 64, [&](int64_t begin, int64_t end) {
        run_as<SameCode, SameCode, SameCode>(
            isa, [&](SameCode) __attribute__((always_inline)) {
              for (int64_t block = begin; block < end; ++block) each(x + block * kCodeBlock, codes + block * block_bytes());
            });
      });
    });
  }
};

template <class T, class Measure>
[[gnu::always_inline]] inline float measured(const T* x, const Measure& measure) {
  std::array<T, 16> lanes{};  // so that the compiler may add them in any processor's registers
  for (int64_t i = 0; i < kCodeBlock; i += 16) {
    for (size_t lane = 0; lane < 16; ++lane) lanes[lane] = measure(lanes[lane], std::abs(x[i + static_cast<int64_t>(lane)]));
  }
  T all = 0;
  for (const T lane : lanes) all = measure(all, lane);
  return static_cast<float>(all);
}

struct Int8Block {
  static constexpr int64_t kCodeBytes = kCodeBlock;

  template <class T>
  [[gnu::always_inline]] static float scale_of(const T* x) {
    const float scale = measured(
                            x, [](T a, T b) __attribute__((always_inline)) { return a < b ? b : a; }) /
                        127;
    return scale < std::numeric_limits<float>::min() ? 0 : scale;  // what is too small to divide by is not sent
  }
  template <class T>
  [[gnu::always_inline]] static void put(T* __restrict x, float scale, uint8_t* __restrict codes) {
    const T inverse = scale > 0 ? 1 / static_cast<T>(scale) : 0;
    for (int64_t i = 0; i < kCodeBlock; ++i) {
      const T whole = std::nearbyint(std::min<T>(std::max<T>(x[i] * inverse, -127), 127));
      codes[i] = static_cast<uint8_t>(static_cast<int32_t>(whole));
      x[i] -= whole * scale;
    }
  }
  template <class T>
  [[gnu::always_inline]] static void add(const uint8_t* __restrict codes, float scale, T* __restrict x) {
    for (int64_t i = 0; i < kCodeBlock; ++i) x[i] += static_cast<T>(static_cast<int8_t>(codes[i])) * scale;
  }
};

struct OneBitBlock {
  static constexpr int64_t kCodeBytes = kCodeBlock / 8;
  // Eight numbers, whose signs are the bits of a byte.
  template <class T>
  using Numbers = Vector<T, 8>;
  template <class T>
  using Masks = Vector<std::conditional_t<sizeof(T) == 4, int32_t, int64_t>, 8>;
  template <class T>
  static constexpr Masks<T> kBits{1, 2, 4, 8, 16, 32, 64, 128};

  template <class T>
  [[gnu::always_inline]] static float scale_of(const T* x) {
    return measured(
               x, [](T a, T b) __attribute__((always_inline)) { return a + b; }) /
           kCodeBlock;
  }
  template <class T>
  [[gnu::always_inline]] static void put(T* x, float scale, uint8_t* codes) {
    const Numbers<T> plus = Numbers<T>{} + static_cast<T>(scale);
    for (int64_t i = 0; i < kCodeBlock; i += 8) {
      Numbers<T> values;
      std::memcpy(&values, x + i, sizeof(values));
      const Masks<T> is_negative = values < 0;
      values -= is_negative ? -plus : plus;
      std::memcpy(x + i, &values, sizeof(values));
      Masks<T> bits = is_negative & kBits<T>;
      bits |= __builtin_shufflevector(bits, bits, 4, 5, 6, 7, 0, 1, 2, 3);
      bits |= __builtin_shufflevector(bits, bits, 2, 3, 0, 1, 6, 7, 4, 5);
      codes[i / 8] = static_cast<uint8_t>(bits[0] | bits[1]);
    }
  }
  template <class T>
  [[gnu::always_inline]] static void add(const uint8_t* codes, float scale, T* x) {
    const Numbers<T> plus = Numbers<T>{} + static_cast<T>(scale);
    for (int64_t i = 0; i < kCodeBlock; i += 8) {
      Numbers<T> values;
      std::memcpy(&values, x + i, sizeof(values));
      const Masks<T> is_negative = ((Masks<T>{} + codes[i / 8]) & kBits<T>) != 0;
      values += is_negative ? -plus : plus;
      std::memcpy(x + i, &values, sizeof(values));
    }
  }
};

}  // namespace

const Codec& int8_codec() {
  static const BlockCodec<Int8Block> codec;
  return codec;
}

const Codec& onebit_codec() {
  static const BlockCodec<OneBitBlock> codec;
  return codec;
}

}  // namespace zt::zero
