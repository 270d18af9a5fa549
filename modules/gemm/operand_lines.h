// Views of the operands of a GEMM.
#pragma once

#include <cstdint>

namespace zt {

// Step p of line i is data[i * line + p * step], where `line` or `step` is 1. A line is a row of the left operand or a column of
// the right operand. A GEMM sums over steps.
template <class T>
struct OperandLines {
  const T* data;
  int64_t line, step;

  OperandLines at(int64_t i, int64_t p) const { return {data + i * line + p * step, line, step}; }
};

}  // namespace zt
