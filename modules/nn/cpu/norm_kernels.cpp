#include "vector.h"

namespace zt::nn::kernels {

namespace {

enum class Centred : uint8_t { no, yes };

// Returns the sum of term(element) over a row.
template <class T, class Term>
ZT_INLINE double row_sum(const T* x, int64_t width, const Term& term) {
  using W = Wide<T>;
  OrderedSum<W> sum;
  by_blocks(
      width, [&](int64_t begin, int64_t count) __attribute__((always_inline)) {
        W space[kBlock];
        const W* xs = widened(x + begin, count, space);
        sum.add(
            count, [=](int64_t j) __attribute__((always_inline)) { return term(xs[j]); });
      });
  return sum.total();
}

template <Centred centred, class T>
ZT_INLINE void norm_loop(T* out, NormStats<Wide<T>> stats, const T* x, const T* weight, const T* bias, double eps, int64_t rows,
                         int64_t width) {
  using W = Wide<T>;
  const auto n = static_cast<double>(width);
  for (int64_t r = 0; r < rows; ++r, out += width, x += width) {
    W mean = 0;
    if constexpr (centred == Centred::yes) {
      const auto itself = [](W v) __attribute__((always_inline)) {
        return v;
      };
      mean = static_cast<W>(row_sum(x, width, itself) / n);
      stats.mean[r] = mean;
    }
    const auto square = [=](W v) __attribute__((always_inline)) {
      return (v - mean) * (v - mean);
    };
    const W scale = static_cast<W>(1.0 / std::sqrt(row_sum(x, width, square) / n + eps));
    stats.reciprocal[r] = scale;
    const auto scaled = [=](int64_t j) __attribute__((always_inline)) {
      return (widen(x[j]) - mean) * scale * widen(weight[j]);
    };
    if (bias) {
      ZT_NO_OVERLAP
      for (int64_t j = 0; j < width; ++j) out[j] = narrow<T>(scaled(j) + widen(bias[j]));
    } else {
      ZT_NO_OVERLAP
      for (int64_t j = 0; j < width; ++j) out[j] = narrow<T>(scaled(j));
    }
  }
}

// Sums of a row, with g = dy * weight. pull is the sum of g (x - mean), shift the sum of g (0 for RMSNorm).
struct GradientSums {
  double pull, shift;
};
template <Centred centred, class T>
ZT_INLINE GradientSums gradient_sums(const T* dy, const T* x, const T* weight, Wide<T> mean, int64_t width) {
  using W = Wide<T>;
  OrderedSum<W> pull, shift;
  by_blocks(
      width, [&](int64_t begin, int64_t count) __attribute__((always_inline)) {
        W space[3][kBlock];
        const W *gs = widened(dy + begin, count, space[0]), *xs = widened(x + begin, count, space[1]);
        const W* ws = widened(weight + begin, count, space[2]);
        pull.add(
            count, [=](int64_t j) __attribute__((always_inline)) { return gs[j] * ws[j] * (xs[j] - mean); });
        if constexpr (centred == Centred::yes) {
          shift.add(
              count, [=](int64_t j) __attribute__((always_inline)) { return gs[j] * ws[j]; });
        }
      });
  return {pull.total(), centred == Centred::yes ? shift.total() : 0};
}

// Writes dx = (g - mean(g) - h mean(g h)) / deviation, where g = dy * weight and h = (x - mean) / deviation, plus `beside` unless
// it is null. RMSNorm has no mean(g).
template <Centred centred, class T>
ZT_INLINE void norm_input_loop(T* dx, const T* dy, const T* x, const T* weight, const T* beside, Wide<T> mean, Wide<T> scale,
                               int64_t width) {
  using W = Wide<T>;
  const auto n = static_cast<double>(width);
  const auto sums = gradient_sums<centred>(dy, x, weight, mean, width);
  const W pull = static_cast<W>(sums.pull / n) * scale * scale, shift = static_cast<W>(sums.shift / n);
  const auto own = [=](int64_t j) __attribute__((always_inline)) {
    return scale * (widen(dy[j]) * widen(weight[j]) - shift - (widen(x[j]) - mean) * pull);
  };
  if (beside) {
    ZT_NO_OVERLAP
    for (int64_t j = 0; j < width; ++j) dx[j] = narrow<T>(own(j) + widen(beside[j]));
  } else {
    ZT_NO_OVERLAP
    for (int64_t j = 0; j < width; ++j) dx[j] = narrow<T>(own(j));
  }
}

template <Centred centred, class T>
ZT_INLINE void norm_backward_loop(T* dx, Wide<T>* dweight, Wide<T>* dbias, const T* dy, const T* x, const T* weight,
                                  const T* beside, NormStats<const Wide<T>> stats, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, dx += width, dy += width, x += width) {
    const Wide<T> mean = centred == Centred::yes ? stats.mean[r] : 0, scale = stats.reciprocal[r];
    norm_input_loop<centred>(dx, dy, x, weight, beside ? beside + r * width : nullptr, mean, scale, width);
    if (dweight) {
      ZT_NO_OVERLAP
      for (int64_t j = 0; j < width; ++j) dweight[j] += widen(dy[j]) * (widen(x[j]) - mean) * scale;
    }
    if (dbias) {
      ZT_NO_OVERLAP
      for (int64_t j = 0; j < width; ++j) dbias[j] += widen(dy[j]);
    }
  }
}

}  // namespace

#define ZT_DEFINE_KERNELS(T)                                                                                                  \
  template <>                                                                                                                 \
  ZT_CLONES void norm(T* out, NormStats<Wide<T>> stats, const T* x, const T* weight, const T* bias, double eps, int64_t rows, \
                      int64_t width) {                                                                                        \
    if (stats.mean) norm_loop<Centred::yes>(out, stats, x, weight, bias, eps, rows, width);                                   \
    else norm_loop<Centred::no>(out, stats, x, weight, bias, eps, rows, width);                                               \
  }                                                                                                                           \
  template <>                                                                                                                 \
  ZT_CLONES void norm_backward(T* dx, Wide<T>* dweight, Wide<T>* dbias, const T* dy, const T* x, const T* weight,             \
                               const T* beside, NormStats<const Wide<T>> stats, int64_t rows, int64_t width) {                \
    if (stats.mean) norm_backward_loop<Centred::yes>(dx, dweight, dbias, dy, x, weight, beside, stats, rows, width);          \
    else norm_backward_loop<Centred::no>(dx, dweight, dbias, dy, x, weight, beside, stats, rows, width);                      \
  }

ZT_DEFINE_KERNELS(double)
ZT_DEFINE_KERNELS(float)
ZT_DEFINE_KERNELS(c10::BFloat16)
ZT_DEFINE_KERNELS(c10::Half)
#undef ZT_DEFINE_KERNELS

}  // namespace zt::nn::kernels
