#include "copy_elements.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace zt {

namespace {

constexpr int64_t kGrain = int64_t{1} << 20;  // bytes for a thread
constexpr int64_t kBlock = int64_t{1} << 15;  // elements that are converted at once

// Copies bytes past the caches. Other threads see them after fence().
void stream_bytes(char* to, const char* from, size_t bytes) {
#if defined(__SSE2__)
  constexpr size_t kLine = 64, kRegister = sizeof(__m128i);
  if (bytes < 4 * kLine) {
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  std::memcpy(to, from, head);
  size_t done = head;
  for (; done + kLine <= bytes; done += kLine) {
    for (size_t part = 0; part < kLine; part += kRegister)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + done + part),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done + part)));
  }
  std::memcpy(to + done, from + done, bytes - done);
#else
  std::memcpy(to, from, bytes);
#endif
}

void fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// ATen's copy of 16-bit numbers takes more than twice the time of memcpy.
void copy_rows(const at::Tensor& to, const at::Tensor& from, Caching caching) {
  const int64_t size = to.element_size(), times = to.size(0), bytes = to.size(1) * size;
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  const auto copy = [&](int64_t to_byte, int64_t from_byte, int64_t count) {
    if (caching == Caching::bypass) stream_bytes(target + to_byte, source + from_byte, static_cast<size_t>(count));
    else std::memcpy(target + to_byte, source + from_byte, static_cast<size_t>(count));
  };
  if (times == 1) {
    at::parallel_for(0, bytes, kGrain, [&](int64_t begin, int64_t end) {
      copy(begin, begin, end - begin);
      fence();
    });
    return;
  }
  const int64_t to_row = to.stride(0) * size, from_row = from.stride(0) * size;
  at::parallel_for(0, times, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, bytes)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) copy(t * to_row, t * from_row, bytes);
    fence();
  });
}

// Converts long rows in blocks, which stay in the caches until they are written past them.
void convert_rows(const at::Tensor& to, const at::Tensor& from) {
  const int64_t count = to.size(1);
  const at::Tensor block = at::empty({1, kBlock}, to.options());
  for (int64_t t = 0; t < to.size(0); ++t) {
    for (int64_t first = 0; first < count; first += kBlock) {
      const int64_t some = std::min(kBlock, count - first);
      const at::Tensor converted = block.narrow(1, 0, some);
      converted.copy_(from.narrow(0, t, 1).narrow(1, first, some));
      copy_rows(to.narrow(0, t, 1).narrow(1, first, some), converted, Caching::bypass);
    }
  }
}

}  // namespace

void copy_elements(const at::Tensor& to, const at::Tensor& from, Caching caching) {
  const bool is_on_host = to.is_cpu() && from.is_cpu();
  if (is_on_host && to.scalar_type() == from.scalar_type()) copy_rows(to, from, caching);
  else if (is_on_host && caching == Caching::bypass && to.size(1) >= kBlock) convert_rows(to, from);
  else at::Tensor(to).copy_(from);
}

}  // namespace zt
