// The loops of the gemm provider "dots".
//
// The steps of a dot product are divided into blocks of kDepth. In a block, partial sum i of 16 takes every 16th step from step i
// on, each as one fused multiply-add in fp32. For bf16 it takes every 16th pair of steps from pair i on, of each pair the second
// step first, as the instruction VDPBF16PS does. Sums i and i + 8, then i and i + 4, ... are added, and then the sums of the
// blocks, in ascending order. So the bits depend neither on the instruction set, the tile nor the number of threads.
#pragma once

#include <cstdint>

#include "zt/base/isa.h"

namespace zt::dots {

using Bf16 = uint16_t;  // its bits

constexpr int64_t kLanes = 16;
constexpr int64_t kDepth = 1024;       // most steps per block
constexpr int64_t kStep = 2 * kLanes;  // blocks are padded with zeros to a multiple of this
constexpr int64_t kMostColumns = 8;    // of a task

constexpr int64_t padded(int64_t depth) {
  return (depth + kStep - 1) / kStep * kStep;
}

// c [rows, columns] = alpha x w^T + beta c, for one block: x [rows, depth], w [columns, depth], rows of each so many elements
// apart, depth a multiple of kStep. If beta is 0, the old content of c is ignored. T is float, or Bf16.
template <class T>
struct DotTask {
  const T* x;
  int64_t x_row, rows;
  const T* w;
  int64_t w_row, columns, depth;
  const T* next;  // w of the next task, with the same w_row: the processor fetches it from memory meanwhile. Null: unknown
  float* c;
  int64_t c_row;
  float alpha, beta;
};
void multiply(Isa isa, const DotTask<float>& task);
// Requires a processor with instructions for bf16.
void multiply(const DotTask<Bf16>& task);

// Writes `depth` steps as fp32 in the order in which the sums of pairs take them, and zeros up to padded(depth).
void widen(float* to, const Bf16* from, int64_t depth);

}  // namespace zt::dots
