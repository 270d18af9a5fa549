// Helpers of the row algorithms of device_*.h: packs of neighbouring elements, and the interface of a team of lanes.
//
// A row algorithm is a struct of pointers and sizes, called as algorithm(team, row). On a GPU the team is a block of threads
// (device_launch.h). Tests emulate a team on the CPU, which adds in the same order. A Team has the methods
//   each(n, body)                        calls body(i) once for each i < n; lane l of L takes i = l, l + L, ...
//   reduce(n, start, take, combine)      each lane begins with `start` and calls take(own, i) for its i, ascending; then
//                                        combine(a, b), which must equal combine(b, a), joins the lanes in a fixed tree. All
//                                        lanes get the result
//   once(body)                           calls body() in one lane
//   join()                               a barrier: afterwards each lane sees the earlier writes of all lanes
// So the order of a sum depends only on n and on the number of lanes, which depends on the row's width: every run gives the same
// bits.
#pragma once

#include <cstdint>

#include "cpu/kernels.h"

// nvcc compiles these functions for the device only, and a call of one from the host to exit(1), without a warning in a template.
// For tests, the host compiler compiles them for the CPU.
#if defined(__CUDACC__)
#define ZT_DEVICE __device__ __forceinline__
#define ZT_HOST_AND_DEVICE __host__ __device__ __forceinline__
#define ZT_UNROLL _Pragma("unroll")
#define ZT_UNROLL_BY(n) ZT_UNROLL_PRAGMA(unroll n)
#define ZT_UNROLL_PRAGMA(text) _Pragma(#text)
#else
#define ZT_DEVICE inline
#define ZT_HOST_AND_DEVICE inline
#define ZT_UNROLL
#define ZT_UNROLL_BY(n)
#endif

namespace zt::nn::device {

using zt::Wide;

// Elements per pack, which a lane processes at once: 16 bytes.
template <class T>
constexpr int kPack = 16 / sizeof(T);
// Returns the number of packs in a row of n elements.
template <class T>
ZT_HOST_AND_DEVICE int64_t packs(int64_t n) {
  return (n + kPack<T> - 1) / kPack<T>;
}

template <int N, class T>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) StoredPack {
  T at[N];
};
// The elements of a pack in the type of the arithmetic.
template <int N, class W>
struct Pack {
  W at[N];
};

template <class Raw>
ZT_DEVICE bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % alignof(Raw) == 0;
}

// Returns the elements j .. j + N - 1 of a row of n elements, widened. Elements after the end of the row are 0, and all are 0 if
// `row` is null.
template <int N, class T>
ZT_DEVICE Pack<N, Wide<T>> load(const T* row, int64_t j, int64_t n) {
  using Raw = StoredPack<N, T>;
  Pack<N, Wide<T>> pack{};
  if (!row) return pack;
  if (j + N <= n && is_aligned<Raw>(row + j)) {
    const Raw raw = *reinterpret_cast<const Raw*>(row + j);
    ZT_UNROLL
    for (int i = 0; i < N; ++i) pack.at[i] = widen(raw.at[i]);
  } else {
    ZT_UNROLL
    for (int i = 0; i < N; ++i) {
      if (j + i < n) pack.at[i] = widen(row[j + i]);
    }
  }
  return pack;
}

// Writes a pack to the elements j .. j + N - 1 of a row of n elements, rounded to nearest even. Writes nothing after the end of
// the row.
template <class T, int N>
ZT_DEVICE void store(T* row, const Pack<N, Wide<T>>& pack, int64_t j, int64_t n) {
  using Raw = StoredPack<N, T>;
  if (j + N <= n && is_aligned<Raw>(row + j)) {
    Raw raw;
    ZT_UNROLL
    for (int i = 0; i < N; ++i) raw.at[i] = narrow<T>(pack.at[i]);
    *reinterpret_cast<Raw*>(row + j) = raw;
  } else {
    ZT_UNROLL
    for (int i = 0; i < N; ++i) {
      if (j + i < n) row[j + i] = narrow<T>(pack.at[i]);
    }
  }
}

// Two sums that are reduced together.
struct Two {
  double a = 0, b = 0;
};
struct Add {
  ZT_DEVICE double operator()(double x, double y) const { return x + y; }
  ZT_DEVICE Two operator()(Two x, Two y) const { return {x.a + y.a, x.b + y.b}; }
};

// Calls body(j) with the index of the first element of each pack of a row of n elements of type T.
template <class T, class Team, class Body>
ZT_DEVICE void each_pack(const Team& team, int64_t n, const Body& body) {
  team.each(packs<T>(n), [&](int64_t pack) { body(pack * kPack<T>); });
}

}  // namespace zt::nn::device
