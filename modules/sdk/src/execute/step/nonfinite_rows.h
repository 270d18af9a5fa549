// Finds numbers that are not finite.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt {

// Returns the index in dim 0 of the first number that is not finite; -1 if all are finite. A tensor without dims has the index 0.
int64_t first_nonfinite_row(const at::Tensor& values);

}  // namespace zt
