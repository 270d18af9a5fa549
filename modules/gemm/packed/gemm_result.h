// The result of a GEMM with packed matrices: its sums are written here, in its dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "zt/gemm/packed.h"

namespace zt::packed {

// A result [m, columns], row-major fp32, bf16 or fp16, with what is added to its sums.
class GemmResult {
 public:
  GemmResult(at::Tensor out, const GemmAddends& addends) : out_(std::move(out)), addends_(addends) {}

  // Writes totals [rows][stride], of which `columns` numbers per row are used, plus the addends, to the elements from
  // [row, column] on. Each is rounded once. `totals` are overwritten.
  void write(float* totals, int64_t stride, int64_t rows, int64_t columns, int64_t row, int64_t column) const;

 private:
  const at::Tensor out_;
  const GemmAddends addends_;
};

}  // namespace zt::packed
