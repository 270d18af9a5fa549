// Copies the operands of a bf16 GEMM into the forms that the microkernels of "brgemm" read.
#pragma once

#include <cstdint>

#include "zt/base/isa.h"

namespace zt::brgemm {

// Elements of bf16, which are only moved.
using Bits = uint16_t;

// An operand: element p of line i is data[i * line + p * step]. A line is a row of the left operand or a column of the right one.
struct Lines {
  const Bits* data;
  int64_t line, step;

  Lines at(int64_t i, int64_t p) const { return {data + i * line + p * step, line, step}; }
};

// Writes `depth` elements of `count` lines to `to` [count, width], followed by zeros up to `width`.
void pack_rows(Isa isa, Bits* to, const Lines& from, int64_t count, int64_t depth, int64_t width);

// Writes them in pairs to `to` [width / 2, count, 2]: the elements 2 p and 2 p + 1 of each line lie together. Those from `depth`
// on are zeros. `width` is even.
void pack_pairs(Isa isa, Bits* to, const Lines& from, int64_t count, int64_t depth, int64_t width);

}  // namespace zt::brgemm
