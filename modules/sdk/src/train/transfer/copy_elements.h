// Copies elements from one memory to another.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt {

// Whether what is written stays in the caches, for a reader that follows, or goes past them: then memory is not read before it is
// written, and bytes that are not in the caches are copied in two thirds of the time.
enum class Caching : uint8_t { keep, bypass };

// Copies [times, count] elements, whose rows are contiguous, and converts them. Where nothing is converted, it is as fast as
// memory on the host.
void copy_elements(const at::Tensor& to, const at::Tensor& from, Caching caching);

}  // namespace zt
