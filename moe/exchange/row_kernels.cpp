#include "exchange/row_kernels.h"

#include <cstring>
#include <type_traits>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

// Functions marked ZT_INLINE are inlined into a function per instruction set, so that they are compiled for that set.
#define ZT_INLINE inline __attribute__((always_inline))

namespace zt::moe::kernels {

namespace {

constexpr int64_t kLineBytes = 64;  // of the caches
template <class T>
constexpr int64_t kLine = kLineBytes / sizeof(T);  // elements

// The vector registers of an instruction set.
template <int64_t kBytes>
struct Registers {
  template <class T>
  using Vector [[gnu::vector_size(kBytes)]] = T;
};

// The values of a line of T, in registers R. Those of bfloat16 stand apart: first the even places of the line, then the odd ones.
template <class R, class T>
struct Values {
  using Vector = typename R::template Vector<Wide<T>>;
  using Bits = typename R::template Vector<uint32_t>;
  static constexpr size_t kLanes = sizeof(Vector) / sizeof(Wide<T>), kParts = kLine<T> / kLanes;
  Vector parts[kParts];
};

// Reads a line.
template <class R, class T>
ZT_INLINE void read_line(Values<R, T>& values, const T* from) {
  using V = Values<R, T>;
  if constexpr (std::is_same_v<T, Wide<T>>) {
    for (size_t i = 0; i < V::kParts; ++i) std::memcpy(&values.parts[i], from + i * V::kLanes, sizeof(typename V::Vector));
  } else if constexpr (std::is_same_v<T, c10::BFloat16>) {  // as Bfloat16::widen
    for (size_t i = 0; i < V::kParts / 2; ++i) {
      typename V::Bits pairs;
      std::memcpy(&pairs, from + i * 2 * V::kLanes, sizeof pairs);
      values.parts[i] = __builtin_bit_cast(typename V::Vector, pairs << 16);
      values.parts[V::kParts / 2 + i] = __builtin_bit_cast(typename V::Vector, pairs & 0xFFFF0000);
    }
  } else {
    Wide<T> wide[kLine<T>];
    for (int64_t i = 0; i < kLine<T>; ++i) wide[i] = widen(from[i]);
    std::memcpy(values.parts, wide, sizeof wide);
  }
}

// Reads n values; the others are zero. `n` is an integer, or a constant for a full line.
template <class R, class T, class N>
ZT_INLINE void read(Values<R, T>& values, const T* from, N n) {
  if constexpr (std::is_integral_v<N>) {
    T line[kLine<T>] = {};
    std::memcpy(line, from, static_cast<size_t>(n) * sizeof(T));
    read_line(values, line);
  } else {
    read_line(values, from);
  }
}

// Rounds the values to a line.
template <class R, class T>
ZT_INLINE void round_to(T* to, const Values<R, T>& values) {
  using V = Values<R, T>;
  if constexpr (std::is_same_v<T, Wide<T>>) {
    for (size_t i = 0; i < V::kParts; ++i) std::memcpy(to + i * V::kLanes, &values.parts[i], sizeof(typename V::Vector));
  } else if constexpr (std::is_same_v<T, c10::BFloat16>) {  // as Bfloat16::narrow
    using Bits = typename V::Bits;
    Bits wide[V::kParts];
    for (size_t i = 0; i < V::kParts; ++i) {
      const auto value = values.parts[i];
      wide[i] = value == value ? __builtin_bit_cast(Bits, value) : Bits{} + 0x7FC00000;
      wide[i] += 0x7FFF + (wide[i] >> 16 & 1);
    }
    for (size_t i = 0; i < V::kParts / 2; ++i) {
      const Bits pairs = wide[i] >> 16 | (wide[V::kParts / 2 + i] & 0xFFFF0000);
      std::memcpy(to + i * 2 * V::kLanes, &pairs, sizeof pairs);
    }
  } else {
    Wide<T> wide[kLine<T>];
    std::memcpy(wide, values.parts, sizeof wide);
    for (int64_t i = 0; i < kLine<T>; ++i) to[i] = narrow<T>(wide[i]);
  }
}

// Adds factor * from, n values.
template <class R, class T, class N>
ZT_INLINE void add_product(Values<R, T>& sum, Wide<T> factor, const T* from, N n) {
  Values<R, T> values;
  read(values, from, n);
  for (size_t i = 0; i < sum.kParts; ++i) sum.parts[i] += factor * values.parts[i];
}

// Returns the sum of all values: halves are added, again and again.
template <class R, class T>
ZT_INLINE Wide<T> total(const Values<R, T>& values) {
  Wide<T> sums[kLine<T>];
  std::memcpy(sums, values.parts, sizeof sums);
  for (int64_t half = kLine<T> / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

// Runs body(registers, token) for all tokens, compiled for the instruction set.
template <class Body>
void for_tokens(const Tokens& shape, const Body& body) {
  run_as<Registers<16>, Registers<32>, Registers<64>>(
      shape.isa, [&](auto registers) __attribute__((always_inline)) {
        for (int64_t token = shape.begin; token < shape.end; ++token) body(registers, token);
      });
#if defined(__SSE2__)
  if (shape.streams) _mm_sfence();
#endif
}

// Writes a row: calls write(line, begin, n) for n of its elements at a time; n is a constant for full lines. `streams`: full
// lines are stored past the caches if the addresses allow it. Nothing is fetched ahead: the processor does that better
// (measured).
template <class T, class Write>
ZT_INLINE void by_lines(T* row, int64_t width, bool streams, const Write& write) {
  constexpr std::integral_constant<int64_t, kLine<T>> kFull;
  alignas(kLineBytes) T line[kFull];
  int64_t begin = 0;
#if defined(__SSE2__)
  if (streams && reinterpret_cast<uintptr_t>(row) % sizeof(__m128i) == 0) {
    for (; begin + kFull <= width; begin += kFull) {
      write(line, begin, kFull);
      auto* to = reinterpret_cast<__m128i*>(row + begin);
      for (int i = 0; i < 4; ++i) _mm_stream_si128(to + i, reinterpret_cast<const __m128i*>(line)[i]);
    }
  }
#endif
  for (; begin + kFull <= width; begin += kFull) {
    write(line, begin, kFull);
    std::memcpy(row + begin, line, sizeof line);
  }
  if (begin == width) return;
  write(line, begin, width - begin);
  std::memcpy(row + begin, line, static_cast<size_t>(width - begin) * sizeof(T));
}

}  // namespace

template <class T>
void copy_to_rows(T* rows, const T* tokens, const Tokens& shape) {
  for_tokens(
      shape, [&](auto, int64_t token) __attribute__((always_inline)) {
        const T* from = tokens + token * shape.width;
        for (int64_t pair = token * shape.routes; pair < (token + 1) * shape.routes; ++pair) {
          if (shape.places[pair] < 0) continue;
          by_lines(
              rows + shape.places[pair] * shape.width, shape.width,
              shape.streams, [=](T * line, int64_t begin, auto n) __attribute__((always_inline)) {
                std::memcpy(line, from + begin, static_cast<size_t>(n) * sizeof(T));
              });
        }
      });
}

template <class T>
void sum_to_tokens(T* tokens, const T* rows, const Wide<T>* factors, const T* more, const Tokens& shape) {
  for_tokens(
      shape, [&](auto registers, int64_t token) __attribute__((always_inline)) {
        using R = decltype(registers);
        by_lines(
            tokens + token * shape.width, shape.width,
            shape.streams, [&](T * line, int64_t begin, auto n) __attribute__((always_inline)) {
              Values<R, T> sum = {};
              if (more) read(sum, more + token * shape.width + begin, n);
              for (int64_t pair = token * shape.routes; pair < (token + 1) * shape.routes; ++pair) {
                if (shape.places[pair] < 0) continue;
                const Wide<T> factor = factors ? factors[pair] : Wide<T>(1);
                add_product(sum, factor, rows + shape.places[pair] * shape.width + begin, n);
              }
              round_to(line, sum);
            });
      });
}

template <class T>
void sum_backward(T* of_rows, Wide<T>* of_factors, const T* of_tokens, const T* rows, const Wide<T>* factors,
                  const Tokens& shape) {
  for_tokens(
      shape, [&](auto registers, int64_t token) __attribute__((always_inline)) {
        using R = decltype(registers);
        for (int64_t pair = token * shape.routes; pair < (token + 1) * shape.routes; ++pair) {
          if (shape.places[pair] < 0) continue;
          const int64_t first = shape.places[pair] * shape.width;
          const Wide<T> factor = factors ? factors[pair] : Wide<T>(1);
          Values<R, T> sums = {};
          by_lines(
              of_rows + first, shape.width, shape.streams, [&](T * line, int64_t begin, auto n) __attribute__((always_inline)) {
                Values<R, T> gradient, row;
                read(gradient, of_tokens + token * shape.width + begin, n);
                read(row, rows + first + begin, n);
                for (size_t i = 0; i < sums.kParts; ++i) {
                  sums.parts[i] += gradient.parts[i] * row.parts[i];
                  gradient.parts[i] *= factor;
                }
                round_to(line, gradient);
              });
          of_factors[pair] = total(sums);
        }
      });
}

#define ZT_INSTANTIATE(T)                                                             \
  template void copy_to_rows(T*, const T*, const Tokens&);                            \
  template void sum_to_tokens(T*, const T*, const Wide<T>*, const T*, const Tokens&); \
  template void sum_backward(T*, Wide<T>*, const T*, const T*, const Wide<T>*, const Tokens&);
ZT_INSTANTIATE(double)
ZT_INSTANTIATE(float)
ZT_INSTANTIATE(c10::BFloat16)
ZT_INSTANTIATE(c10::Half)
#undef ZT_INSTANTIATE

}  // namespace zt::moe::kernels
