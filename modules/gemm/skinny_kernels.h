// The loops of the gemm provider "skinny": panels of operands, widened to fp32, and the product of two panels.
//
// An element of a product is the sum over blocks of steps, ascending, of the block's sum: from 0, steps ascending, each one fused
// multiply-add. So it has the same bits whatever the instruction set, the tile it falls in and the number of threads.
#pragma once

#include <cstdint>

#include "zt/base/isa.h"

namespace zt::skinny {

constexpr int64_t kRows = 8;      // lines of a panel of the left operand
constexpr int64_t kColumns = 48;  // lines of a panel of the right operand
constexpr int64_t kDepth = 128;   // most steps of a block: a panel of the right operand fits the first-level cache

// An operand: step p of line i is data[i line + p step], where `line` or `step` is 1. Lines are rows of the left operand, columns
// of the right one; steps are what the product sums over.
template <class T>
struct Lines {
  const T* data;
  int64_t line, step;

  Lines at(int64_t i, int64_t p) const { return {data + i * line + p * step, line, step}; }
};

// Fetches memory while products run: `runs` pieces of `bytes`, `stride` bytes apart, a few lines of the cache every kSteps steps
// of a tile. Long pieces one after the other: the processor's own prefetcher then runs ahead, with more requests than a program
// can have under way.
class Fetch {
 public:
  static constexpr int64_t kSteps = 8;

  Fetch() = default;
  // `tiles`: how many tiles of `depth` steps there are to spread it over.
  Fetch(const void* data, int64_t stride, int64_t runs, int64_t bytes, int64_t tiles, int64_t depth)
      : data_(static_cast<const char*>(data)), stride_(stride), runs_(runs), bytes_(bytes) {
    const int64_t turns = tiles * ((depth + kSteps - 1) / kSteps), lines = runs * (bytes / kLine + 1);
    lines_a_turn_ = (lines + turns - 1) / turns;
  }
  [[gnu::always_inline]] void turn() {
    for (int64_t i = 0; i < lines_a_turn_ && runs_ > 0; ++i) {
      __builtin_prefetch(data_ + done_, 0, 2);
      done_ += kLine;
      if (done_ < bytes_) continue;
      done_ = 0;
      data_ += stride_;
      --runs_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const char* data_ = nullptr;
  int64_t stride_ = 0, runs_ = 0, bytes_ = 0, lines_a_turn_ = 0, done_ = 0;
};

// to [depth, width] = the first `count` lines, then 0 up to what a register holds. width is kRows or kColumns; T is float,
// c10::BFloat16 or c10::Half.
template <int64_t width, class T>
void pack(Isa isa, float* to, const Lines<T>& from, int64_t count, int64_t depth);

// c [rows, columns] = alpha x y + beta c; beta = 0: c is only written. columns <= kColumns, depth <= kDepth.
struct Product {
  const float* x;  // panels of kRows rows, one after the other
  const float* y;  // one panel
  int64_t rows, columns, depth;
  float* c;
  int64_t c_row;
  float alpha, beta;
};
void multiply(Isa isa, const Product& product, Fetch& fetch);

}  // namespace zt::skinny
