// Writes the sums of a GEMM in the dtype of the result.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace zt::packed {

// Writes totals [rows][stride], of which `columns` numbers per row are used, to the elements of `out` from [row, column] on. Each
// is rounded once. `out` is row-major fp32, bf16 or fp16.
void write_totals(const float* totals, int64_t stride, int64_t rows, int64_t columns, const at::Tensor& out, int64_t row,
                  int64_t column);

}  // namespace zt::packed
