// The loops of the gemm provider "skinny". They copy parts of the operands into panels, widened to fp32, and multiply panels.
//
// Each element of the result is a sum over the k steps in a fixed order. The steps are divided into blocks. The sum of a block
// starts from 0 and takes one fused multiply-add per step, in ascending order. The sums of the blocks are added in ascending
// order. So the bits do not depend on the instruction set, the tile or the number of threads.
#pragma once

#include <cstdint>

#include "operand_lines.h"
#include "zt/base/isa.h"

namespace zt::skinny {

constexpr int64_t kRows = 8;      // lines per panel of the left operand
constexpr int64_t kColumns = 48;  // lines per panel of the right operand
constexpr int64_t kDepth = 128;   // most steps per block, so that a panel of the right operand fits the first-level cache

// Prefetches memory while tiles are computed: `runs` runs of `bytes` bytes, `stride` bytes apart. It prefetches a few cache lines
// every kSteps steps of a tile. Long runs are read one after the other, so that the processor's own prefetcher reads ahead: it
// can have more requests under way than a program.
class Prefetcher {
 public:
  static constexpr int64_t kSteps = 8;

  Prefetcher() = default;
  // The memory is prefetched in equal shares during `tiles` tiles of `depth` steps.
  Prefetcher(const void* data, int64_t stride, int64_t runs, int64_t bytes, int64_t tiles, int64_t depth)
      : data_(static_cast<const char*>(data)), stride_(stride), runs_(runs), bytes_(bytes) {
    const int64_t calls = tiles * ((depth + kSteps - 1) / kSteps), lines = runs * (bytes / kLine + 1);
    lines_per_call_ = (lines + calls - 1) / calls;
  }
  [[gnu::always_inline]] void fetch_next() {
    for (int64_t i = 0; i < lines_per_call_ && runs_ > 0; ++i) {
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
  int64_t stride_ = 0, runs_ = 0, bytes_ = 0, lines_per_call_ = 0, done_ = 0;
};

// Writes the first `count` lines of `from` to the panel `to` [depth, width], followed by zeros up to a whole register. width is
// kRows or kColumns. T is float, c10::BFloat16 or c10::Half.
template <int64_t width, class T>
void pack(Isa isa, float* to, const OperandLines<T>& from, int64_t count, int64_t depth);

// c [rows, columns] = alpha x y + beta c. If beta is 0, the old content of c is ignored. Requires columns <= kColumns and depth
// <= kDepth.
struct PanelGemm {
  const float* x;  // panels of kRows rows, one after the other
  const float* y;  // one panel of kColumns columns
  int64_t rows, columns, depth;
  float* c;
  int64_t c_row;  // elements between rows of c
  float alpha, beta;
};
void multiply(Isa isa, const PanelGemm& panels, Prefetcher& prefetcher);

}  // namespace zt::skinny
