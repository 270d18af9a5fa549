// The memory of a tensor as bytes.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt::comm {

// Requires a contiguous tensor.
inline char* bytes_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.mutable_data_ptr());
}

}  // namespace zt::comm
