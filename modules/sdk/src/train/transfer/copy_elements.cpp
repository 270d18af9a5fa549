#include "copy_elements.h"

#include <ATen/Parallel.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace zt {

namespace {

constexpr int64_t kGrain = int64_t{1} << 20;  // bytes for a thread

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

}  // namespace

HostElements host_elements(const at::Tensor& flat) {
  if (!flat.is_cpu()) return {};
  return {static_cast<char*>(flat.mutable_data_ptr()), flat.scalar_type()};
}

bool copy_on_host(const HostElements& to, Stretches into, const HostElements& from, Stretches of, int64_t count, int64_t times,
                  CacheUse use) {
  if (!to.data || !from.data || to.dtype != from.dtype) return false;
  const auto size = static_cast<int64_t>(c10::elementSize(to.dtype));
  char* target = to.data + into.first * size;
  const char* source = from.data + of.first * size;
  const int64_t bytes = count * size, to_row = into.stride * size, from_row = of.stride * size;
  const auto copy = [&](int64_t to_byte, int64_t from_byte, int64_t some) {
    if (use == CacheUse::bypass) stream_bytes(target + to_byte, source + from_byte, static_cast<size_t>(some));
    else std::memcpy(target + to_byte, source + from_byte, static_cast<size_t>(some));
  };
  if (times == 1) {
    at::parallel_for(0, bytes, kGrain, [&](int64_t begin, int64_t end) {
      copy(begin, begin, end - begin);
      fence();
    });
    return true;
  }
  at::parallel_for(0, times, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, bytes)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) copy(t * to_row, t * from_row, bytes);
    fence();
  });
  return true;
}

// ATen's copy of 16-bit numbers takes more than twice the time of memcpy.
void copy_elements(const at::Tensor& to, const at::Tensor& from, CacheUse use) {
  const Stretches into{0, to.stride(0)}, of{0, from.stride(0)};
  if (!copy_on_host(host_elements(to), into, host_elements(from), of, to.size(1), to.size(0), use)) at::Tensor(to).copy_(from);
}

}  // namespace zt
