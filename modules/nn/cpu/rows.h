// Running kernels over the rows of tensors: one dtype switch and one way to cut rows over threads.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::nn {

// Calls body(T{}) with T = double, float, c10::BFloat16 or c10::Half, the dtype of `x`; not for a meta tensor, which has no
// elements to compute.
template <class Body>
void for_dtype(const at::Tensor& x, const Body& body) {
  if (x.is_meta()) return;
  switch (x.scalar_type()) {
    case at::kDouble:
      return body(double{});
    case at::kFloat:
      return body(float{});
    case at::kBFloat16:
      return body(c10::BFloat16{});
    case at::kHalf:
      return body(c10::Half{});
    default:
      misuse("layers compute in float64, float32, bfloat16 or float16, got {}", describe(x));
  }
}

// The dtype in which kernels compute with elements of `dtype`: kernels::Wide.
inline at::ScalarType wide_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// Calls body(begin, end) for parts of [0, rows) with at least about 32,768 elements each, in parallel. What a row gives does
// not depend on the cut.
template <class Body>
void for_rows(int64_t rows, int64_t width, const Body& body) {
  constexpr int64_t kGrain = 32768;
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width)), body);
}

// Calls body(begin, end) for parts of [0, elements), in parallel.
template <class Body>
void for_elements(int64_t elements, const Body& body) {
  for_rows(elements, 1, body);
}

// The elements of an optional tensor: nullptr if it is undefined.
template <class T>
const T* data_or_null(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<T>() : nullptr;
}

}  // namespace zt::nn
