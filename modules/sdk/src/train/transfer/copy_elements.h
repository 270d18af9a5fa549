// Copies elements from one memory to another.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt {

// Whether what is written stays in the caches, for a reader that follows, or goes past them: then memory is not read before it is
// written, and bytes that are not in the caches are copied in two thirds of the time.
enum class CacheUse : uint8_t { keep, bypass };

// Elements that lie one after the other in memory of the host. Null elsewhere.
struct HostElements {
  char* data = nullptr;
  at::ScalarType dtype = at::kFloat;
};

// Returns the elements of a contiguous tensor.
HostElements host_elements(const at::Tensor& flat);

// `times` stretches of elements, of which each begins `stride` elements after the one before.
struct Stretches {
  int64_t first = 0, stride = 0;
};

// Copies as many stretches of `count` elements. Returns false, and copies nothing, if one side is not on the host, or if elements
// would be converted.
bool copy_on_host(const HostElements& to, Stretches into, const HostElements& from, Stretches of, int64_t count, int64_t times,
                  CacheUse use);

// Copies [times, count] elements, whose rows are contiguous, and converts them.
void copy_elements(const at::Tensor& to, const at::Tensor& from, CacheUse use);

}  // namespace zt
