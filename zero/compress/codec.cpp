#include "compress/codec.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <array>
#include <cmath>
#include <cstring>

#include "zt/base/error.h"

namespace zt::zero {

Codec::~Codec() = default;

namespace {

// `Block` has kCodeBytes, and static functions that code one block: scale_of(x), put(x, scale, codes), which leaves in x what the
// codes lack, and add(codes, scale, x).
template <class Block>
class BlockCodec final : public Codec {
 public:
  int64_t block_bytes() const override { return Block::kCodeBytes + static_cast<int64_t>(sizeof(float)); }

  void encode(const at::Tensor& values, const at::Tensor& bytes) const override {
    for_each_block(values, bytes, [](auto* x, uint8_t* codes) {
      const float scale = Block::scale_of(x);
      std::memcpy(codes + Block::kCodeBytes, &scale, sizeof(scale));
      Block::put(x, scale, codes);
    });
  }

  void decode_add(const at::Tensor& bytes, const at::Tensor& values) const override {
    for_each_block(values, bytes, [](auto* x, const uint8_t* codes) {
      float scale;
      std::memcpy(&scale, codes + Block::kCodeBytes, sizeof(scale));
      Block::add(codes, scale, x);
    });
  }

 private:
  template <class Each>
  void for_each_block(const at::Tensor& values, const at::Tensor& bytes, const Each& each) const {
    const int64_t blocks = values.numel() / kCodeBlock;
    if (!values.is_cpu())
      misuse("codes of gradients are made on the CPU, and the gradients are on {}: use powersgd", values.device().str());
    if (values.numel() % kCodeBlock != 0 || bytes.numel() != blocks * block_bytes())
      misuse("{} numbers have {} bytes of codes: give whole blocks", values.numel(), bytes.numel());
    if (blocks == 0) return;
    auto* codes = bytes.mutable_data_ptr<uint8_t>();
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "codes", [&] {
      auto* x = values.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, blocks, 64, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) each(x + block * kCodeBlock, codes + block * block_bytes());
      });
    });
  }
};

template <class T, class Measure>
float measured(const T* x, const Measure& measure) {
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
  static float scale_of(const T* x) {
    return measured(x, [](T a, T b) { return a < b ? b : a; }) / 127;
  }
  template <class T>
  static void put(T* x, float scale, uint8_t* codes) {
    const T inverse = scale > 0 ? 1 / static_cast<T>(scale) : 0;
    for (int64_t i = 0; i < kCodeBlock; ++i) {
      const auto code = static_cast<int8_t>(std::nearbyint(std::min<T>(std::max<T>(x[i] * inverse, -127), 127)));
      codes[i] = static_cast<uint8_t>(code);
      x[i] -= static_cast<T>(code) * scale;
    }
  }
  template <class T>
  static void add(const uint8_t* codes, float scale, T* x) {
    for (int64_t i = 0; i < kCodeBlock; ++i) x[i] += static_cast<T>(static_cast<int8_t>(codes[i])) * scale;
  }
};

struct OneBitBlock {
  static constexpr int64_t kCodeBytes = kCodeBlock / 8;

  template <class T>
  static float scale_of(const T* x) {
    return measured(x, [](T a, T b) { return a + b; }) / kCodeBlock;
  }
  template <class T>
  static void put(T* x, float scale, uint8_t* codes) {
    for (int64_t i = 0; i < kCodeBlock; i += 8) {
      uint8_t byte = 0;
      for (int bit = 0; bit < 8; ++bit) {
        const bool is_negative = x[i + bit] < 0;
        byte = static_cast<uint8_t>(byte | (is_negative ? 1 << bit : 0));
        x[i + bit] -= is_negative ? -scale : scale;
      }
      codes[i / 8] = byte;
    }
  }
  template <class T>
  static void add(const uint8_t* codes, float scale, T* x) {
    for (int64_t i = 0; i < kCodeBlock; i += 8) {
      for (int bit = 0; bit < 8; ++bit) x[i + bit] += codes[i / 8] >> bit & 1 ? -scale : scale;
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
