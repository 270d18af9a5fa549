// Moves rows between the order of tokens and the order in which they are sent (row_order.h). Rows are contiguous [rows, width],
// in float64, float32, bfloat16 or float16. On CUDA by ATen's operators. For meta tensors only shapes are computed.
#pragma once

#include <ATen/core/Tensor.h>

#include "exchange/row_order.h"

namespace zt::moe {

// Returns rows [order.rows(), width]: of each, that of its token in `tokens` [tokens, width]; padding rows are zeros.
at::Tensor rows_of_tokens(const at::Tensor& tokens, const RowOrder& order);

// out [tokens, width] = the token's row of `more`, if that is defined, plus the token's rows in ascending order of routes, each
// multiplied by its weight if `weights` ([tokens, routes]) is defined. The sum is in float32 (float64 for float64) and is rounded
// once.
void sum_rows(const at::Tensor& out, const at::Tensor& rows, const RowOrder& order, const at::Tensor& weights = {},
              const at::Tensor& more = {});

struct SumGradients {
  at::Tensor rows;     // [rows, width]: the gradient of the token times the weight, rounded once; zeros in padding rows
  at::Tensor weights;  // [tokens, routes] in the dtype of sums: the inner product of both; 0 for empty routes
};
// Returns the gradients of sum_rows, where `gradient` [tokens, width] is that of `out`.
SumGradients sum_rows_backward(const at::Tensor& gradient, const at::Tensor& rows, const RowOrder& order,
                               const at::Tensor& weights);

}  // namespace zt::moe
