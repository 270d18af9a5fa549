// The gradients of a norm on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "cuda/device_norm.h"
#include "norm_rows.h"

namespace zt::nn {

// Returns where the vectors of a matrix with `columns` columns lie, for row algorithms whose pointers begin at the first vector.
inline device::RowPlaces device_places(const RowParts& parts, int64_t columns) {
  return parts.count * parts.width == columns ? device::RowPlaces{} : device::RowPlaces{parts.count, columns};
}

// Writes dx as norm_rows_backward does. Writes the gradients of weight and bias to dweight and dbias [1, width] of the wide
// dtype; either may be undefined. They are sums over blocks of vectors, then over blocks of these sums, in a fixed order. Without
// rows, nothing is written.
void norm_backward_on_gpu(const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dbias, const NormBackwardInputs& in);

}  // namespace zt::nn
