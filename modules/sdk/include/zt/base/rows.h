// Runs kernels over the rows of tensors: chooses the dtype, and divides the rows among threads.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

// Calls body(T{}), where T is the dtype of x: double, float, c10::BFloat16 or c10::Half. Throws Misuse for other dtypes. Does
// nothing for a meta tensor, which has no elements.
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

// Returns the dtype in which kernels compute with elements of `dtype`, as kernels::Wide.
inline at::ScalarType wide_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// Calls body(begin, end) in parallel for parts of [0, rows) with at least about 32,768 elements each. The result of a row must
// not depend on the parts.
template <class Body>
void for_rows(int64_t rows, int64_t width, const Body& body) {
  constexpr int64_t kGrain = 32768;
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width)), body);
}

// Calls body(begin, end) in parallel for parts of [0, count) of `part` each. Each thread takes the next part when it is done with
// one: for work whose parts take different times, and for threads that do not all get as much of a processor or of the memory.
// make_body() is called by each thread for a body of its own.
template <class MakeBody>
void for_parts(int64_t count, int64_t part, const MakeBody& make_body) {
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), (count + part - 1) / part);
  std::atomic<int64_t> next = 0;
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    auto body = make_body();
    for (int64_t begin = next.fetch_add(part); begin < count; begin = next.fetch_add(part))
      body(begin, std::min(begin + part, count));
  });
}

// Calls body(begin, end) in parallel for parts of [0, elements).
template <class Body>
void for_elements(int64_t elements, const Body& body) {
  for_rows(elements, 1, body);
}

// Returns x [..., n] as a contiguous [rows, n]. Like rows_of, it returns x itself where it can: a step of few tokens consists of
// many such calls, and a view takes LibTorch longer than their arithmetic takes.
inline at::Tensor as_rows(const at::Tensor& x) {
  if (x.dim() == 2 && x.is_contiguous()) return x;
  const int64_t columns = x.size(-1);
  return x.contiguous().view({columns == 0 ? 0 : x.numel() / columns, columns});
}

// Returns the rows [first, first + count) of x.
inline at::Tensor rows_of(const at::Tensor& x, int64_t first, int64_t count) {
  return first == 0 && count == x.size(0) ? x : x.narrow(0, first, count);
}

// Returns the elements of x, or null if x is undefined.
template <class T>
const T* data_or_null(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<T>() : nullptr;
}

}  // namespace zt
