#include "vector.h"

namespace zt::nn::kernels {

namespace {

template <class T>
ZT_INLINE RowStats row_stats_loop(const T* x, int64_t n) {
  using W = Wide<T>;
  W lanes[kLanes];
  for (W& lane : lanes) lane = widen(x[0]);
  by_blocks(
      n, [&](int64_t begin, int64_t count) __attribute__((always_inline)) {
        W space[kBlock];
        const W* terms = widened(x + begin, count, space);
        int64_t i = 0;
        for (; i + kLanes <= count; i += kLanes) {
          for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lanes[lane] > terms[i + lane] ? lanes[lane] : terms[i + lane];
        }
        for (; i < count; ++i) lanes[0] = lanes[0] > terms[i] ? lanes[0] : terms[i];
      });
  W largest = lanes[0];
  for (const W lane : lanes) largest = largest > lane ? largest : lane;
  OrderedSum<W> sum;
  by_blocks(
      n, [&](int64_t begin, int64_t count) __attribute__((always_inline)) {
        W terms[kBlock];
        for (int64_t j = 0; j < count; ++j) terms[j] = exponential(widen(x[begin + j]) - largest);
        sum.add(
            count, [&](int64_t j) __attribute__((always_inline)) { return terms[j]; });
      });
  return {static_cast<double>(largest), sum.total()};
}

template <class T>
ZT_INLINE void scaled_softmax_loop(T* out, const T* x, int64_t n, const RowStats& stats, double scale) {
  using W = Wide<T>;
  const W largest = static_cast<W>(stats.largest), factor = static_cast<W>(scale / stats.sum);
  ZT_NO_OVERLAP
  for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(exponential(widen(x[i]) - largest) * factor);
}

template <class T>
ZT_INLINE void logprob_gradient_loop(T* x, int64_t n, const LogprobRow& row) {
  using W = Wide<T>;
  const W largest = static_cast<W>(row.largest), scale = static_cast<W>(row.scale), shift = static_cast<W>(row.shift);
  const W by_logprob = static_cast<W>(-row.by_logprob / row.sum), by_entropy = static_cast<W>(-row.by_entropy / row.sum);
  constexpr W kLow = -1000;  // its exponential is 0; a logit of -inf would make it 0 times inf
  ZT_NO_OVERLAP
  for (int64_t i = 0; i < n; ++i) {
    const W given = widen(x[i]) * scale - largest, z = given > kLow ? given : kLow;
    x[i] = narrow<T>(exponential(z) * (by_logprob + by_entropy * (z + shift)));
  }
}

template <class T>
ZT_INLINE void scale_kept_loop(T* out, const T* x, const uint8_t* keep, const T* residual, double scale, int64_t n) {
  using W = Wide<T>;
  const W factor = static_cast<W>(scale);
  const auto kept = [=](int64_t i) __attribute__((always_inline)) {
    const W value = widen(x[i]) * factor;
    return keep[i] ? value : W(0);
  };
  if (residual) {
    ZT_NO_OVERLAP
    for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(widen(residual[i]) + kept(i));
  } else {
    ZT_NO_OVERLAP
    for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(kept(i));
  }
}

template <class T>
ZT_INLINE void rotate_loop(T* x, const Wide<T>* cosine, const Wide<T>* sine, int64_t heads, int64_t half, double sign) {
  using W = Wide<T>;
  const W s = static_cast<W>(sign);
  for (int64_t head = 0; head < heads; ++head, x += 2 * half) {
    ZT_NO_OVERLAP
    for (int64_t i = 0; i < half; ++i) {
      const W a = widen(x[i]), b = widen(x[half + i]);
      x[i] = narrow<T>(a * cosine[i] - b * s * sine[i]);
      x[half + i] = narrow<T>(b * cosine[i] + a * s * sine[i]);
    }
  }
}

template <class To, class From>
ZT_INLINE void add_rows_loop(To* to, const From* from, const int64_t* rows, int64_t count, int64_t stride, int64_t n) {
  constexpr int64_t kColumns = 256;  // columns per block, whose sums stay in the first-level cache
  Wide<To> sums[kColumns];
  for (int64_t begin = 0; begin < n; begin += kColumns) {
    const int64_t columns = begin + kColumns < n ? kColumns : n - begin;
    ZT_NO_OVERLAP
    for (int64_t j = 0; j < columns; ++j) sums[j] = widen(to[begin + j]);
    for (int64_t i = 0; i < count; ++i) {
      const From* row = from + rows[i] * stride + begin;
      ZT_NO_OVERLAP
      for (int64_t j = 0; j < columns; ++j) sums[j] += widen(row[j]);
    }
    ZT_NO_OVERLAP
    for (int64_t j = 0; j < columns; ++j) to[begin + j] = narrow<To>(sums[j]);
  }
}

}  // namespace

ZT_CLONES void not_below(uint8_t* kept, const float* numbers, float limit, int64_t n) {
  ZT_NO_OVERLAP
  for (int64_t i = 0; i < n; ++i) kept[i] = numbers[i] >= limit;
}

#define ZT_DEFINE_KERNELS(T)                                                                                          \
  template <>                                                                                                         \
  ZT_CLONES RowStats row_stats(const T* x, int64_t n) {                                                               \
    return row_stats_loop(x, n);                                                                                      \
  }                                                                                                                   \
  template <>                                                                                                         \
  ZT_CLONES void scaled_softmax(T* out, const T* x, int64_t n, const RowStats& stats, double scale) {                 \
    scaled_softmax_loop(out, x, n, stats, scale);                                                                     \
  }                                                                                                                   \
  template <>                                                                                                         \
  ZT_CLONES void logprob_gradient(T* x, int64_t n, const LogprobRow& row) {                                           \
    logprob_gradient_loop(x, n, row);                                                                                 \
  }                                                                                                                   \
  template <>                                                                                                         \
  ZT_CLONES void scale_kept(T* out, const T* x, const uint8_t* keep, const T* residual, double scale, int64_t n) {    \
    scale_kept_loop(out, x, keep, residual, scale, n);                                                                \
  }                                                                                                                   \
  template <>                                                                                                         \
  ZT_CLONES void rotate(T* x, const Wide<T>* cosine, const Wide<T>* sine, int64_t heads, int64_t half, double sign) { \
    rotate_loop(x, cosine, sine, heads, half, sign);                                                                  \
  }
#define ZT_DEFINE_ADD_ROWS(To, From)                                                                                 \
  template <>                                                                                                        \
  ZT_CLONES void add_rows(To* to, const From* from, const int64_t* rows, int64_t count, int64_t stride, int64_t n) { \
    add_rows_loop(to, from, rows, count, stride, n);                                                                 \
  }

ZT_DEFINE_KERNELS(double)
ZT_DEFINE_KERNELS(float)
ZT_DEFINE_KERNELS(c10::BFloat16)
ZT_DEFINE_KERNELS(c10::Half)
ZT_DEFINE_ADD_ROWS(double, double)
ZT_DEFINE_ADD_ROWS(float, float)
ZT_DEFINE_ADD_ROWS(c10::BFloat16, c10::BFloat16)
ZT_DEFINE_ADD_ROWS(c10::Half, c10::Half)
ZT_DEFINE_ADD_ROWS(float, c10::BFloat16)
ZT_DEFINE_ADD_ROWS(float, c10::Half)
#undef ZT_DEFINE_KERNELS
#undef ZT_DEFINE_ADD_ROWS

}  // namespace zt::nn::kernels
