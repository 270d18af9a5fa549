// Copies the operands of a bf16 GEMM into the forms that the microkernels of "brgemm" read.
#pragma once

#include <cstdint>

#include "operand_lines.h"
#include "zt/base/isa.h"

namespace zt::brgemm {

// Elements of bf16, which are only moved.
using Bits = uint16_t;

// Writes `depth` elements of `count` lines to `to` [count, width], followed by zeros up to `width`.
void pack_rows(Isa isa, Bits* to, const OperandLines<Bits>& from, int64_t count, int64_t depth, int64_t width);

// Writes them in pairs to `to` [width / 2, count, 2]: the elements 2 p and 2 p + 1 of each line lie together. Those from `depth`
// on are zeros. `width` is even.
void pack_pairs(Isa isa, Bits* to, const OperandLines<Bits>& from, int64_t count, int64_t depth, int64_t width);

}  // namespace zt::brgemm
