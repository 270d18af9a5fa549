// The loops of LayerNorm and RMSNorm over the rows of a matrix, or over parts of its rows. Without autograd. On the device meta,
// only shapes are computed.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "zt/model/layer.h"

namespace zt::nn {

enum class NormKind : uint8_t { none, layernorm, rmsnorm };
constexpr auto words_of(NormKind) {
  return std::array{"none", "layernorm", "rmsnorm"};
}

// The vectors of a matrix that a norm takes: each row has `count` of them, one after the other from column `first` on, and each
// has `width` elements. Vectors are numbered row by row.
struct RowParts {
  int64_t first = 0;
  int64_t count = 1;
  int64_t width = 0;
};
// Returns the parts of x [rows, columns] that are whole rows.
inline RowParts whole_rows(const at::Tensor& x) {
  return {0, 1, x.size(1)};
}

// Writes the norm of each vector of x to its place in `out`; other columns of `out` are left alone. Returns the statistics for
// the backward, in the wide dtype: [1, vectors] with 1 / deviation; for layernorm [2, vectors], where the second row holds the
// means. x and out: [rows, columns], contiguous, of the same dtype. weight: [width]; bias: [width] or undefined. kind: not none.
at::Tensor norm_rows(const at::Tensor& out, const at::Tensor& x, const RowParts& parts, NormKind kind, const at::Tensor& weight,
                     const at::Tensor& bias, double eps);

// What the backward of norm_rows reads.
struct NormBackwardInputs {
  at::Tensor dy, x;  // [rows, columns], contiguous
  RowParts parts;
  at::Tensor weight, stats;
  at::Tensor beside = {};  // another gradient of x, which is added; may be undefined
};
// Writes the gradient of each vector of x to its place in dx; other columns of dx are left alone. Adds the gradients of weight
// and bias to their sinks. dx must not overlap the inputs.
void norm_rows_backward(const at::Tensor& dx, const NormBackwardInputs& in, const Context::Sink& weight,
                        const Context::Sink& bias = {});

}  // namespace zt::nn
