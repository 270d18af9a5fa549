// What the row algorithms of device_*.h are written with: packs of neighbouring elements, and what a team of lanes offers.
//
// An algorithm is a struct of pointers and sizes that is called as fn(team, row). On a GPU a block of threads is the team
// (device_launch.h); tests emulate one on the CPU, which adds in the same order. A Team has
//   each(n, body)                        body(i) once for every i < n; lane l of L takes i = l, l + L, ...
//   reduce(n, start, take, combine)      each lane folds its i, ascending, by take(own, i), from `start` on; then combine(a, b),
//                                        which must not care for the order of its two, joins the lanes in a fixed tree. All
//                                        lanes get the result
//   once(body)                           body() by one lane
//   join()                               what lanes did before is seen by all after
// So a sum depends on n and the number of lanes only, and that on the row's width: the same bits in every run.
#pragma once

#include <cstdint>

#include "cpu/kernels.h"

// The device compiler makes device code only: the host's copy of these functions is made by the host compiler, for tests.
#if defined(__CUDACC__)
#define ZT_DEVICE __device__ __forceinline__
#define ZT_UNROLL _Pragma("unroll")
#define ZT_UNROLL_BY(n) ZT_UNROLL_PRAGMA(unroll n)
#define ZT_UNROLL_PRAGMA(text) _Pragma(#text)
#else
#define ZT_DEVICE inline
#define ZT_UNROLL
#define ZT_UNROLL_BY(n)
#endif

namespace zt::nn::device {

template <class T>
using Wide = kernels::Wide<T>;

// Elements that a lane takes at a time: 16 bytes of them.
template <class T>
constexpr int kPack = 16 / sizeof(T);
template <class T>
ZT_DEVICE int64_t packs(int64_t n) {
  return (n + kPack<T> - 1) / kPack<T>;
}

template <int N, class T>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Stored {
  T at[N];
};
// Numbers as one computes with them.
template <int N, class W>
struct Pack {
  W at[N];
};

template <class Raw>
ZT_DEVICE bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % alignof(Raw) == 0;
}

// Elements j .. j + N - 1 of a row of n, widened; 0 beyond the row and where there is none (nullptr).
template <int N, class T>
ZT_DEVICE Pack<N, Wide<T>> load(const T* row, int64_t j, int64_t n) {
  using Raw = Stored<N, T>;
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

// Rounds once, to nearest even; nothing beyond the row.
template <class T, int N>
ZT_DEVICE void store(T* row, const Pack<N, Wide<T>>& pack, int64_t j, int64_t n) {
  using Raw = Stored<N, T>;
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

// Two sums at a time.
struct Two {
  double a = 0, b = 0;
};
struct Add {
  ZT_DEVICE double operator()(double x, double y) const { return x + y; }
  ZT_DEVICE Two operator()(Two x, Two y) const { return {x.a + y.a, x.b + y.b}; }
};

// Calls body(j) with the place of each pack of a row of n elements of type T.
template <class T, class Team, class Body>
ZT_DEVICE void each_pack(const Team& team, int64_t n, const Body& body) {
  team.each(packs<T>(n), [&](int64_t pack) { body(pack * kPack<T>); });
}

}  // namespace zt::nn::device
