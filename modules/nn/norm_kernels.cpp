#include "vector.h"

namespace zt::nn::kernels {

namespace {

enum class Centred : uint8_t { no, yes };

template <Centred centred, class T>
ZT_INLINE void norm_loop(T* out, NormStats<Wide<T>> stats, const T* x, const T* weight, const T* bias, double eps, int64_t rows,
                         int64_t width) {
  using W = Wide<T>;
  const auto n = static_cast<double>(width);
  for (int64_t r = 0; r < rows; ++r, out += width, x += width) {
    const T* row = x;
    W mean = 0;
    if constexpr (centred == Centred::yes) {
      mean = static_cast<W>(ordered_sum<W>(
                                width, [=](int64_t j) __attribute__((always_inline)) { return widen(row[j]); }) /
                            n);
      stats.mean[r] = mean;
    }
    const double squares = ordered_sum<W>(
        width, [=](int64_t j) __attribute__((always_inline)) { return (widen(row[j]) - mean) * (widen(row[j]) - mean); });
    const W scale = static_cast<W>(1.0 / std::sqrt(squares / n + eps));
    stats.reciprocal[r] = scale;
    const auto scaled = [=](int64_t j) __attribute__((always_inline)) {
      return (widen(row[j]) - mean) * scale * widen(weight[j]);
    };
    if (bias) {
      ZT_APART
      for (int64_t j = 0; j < width; ++j) out[j] = narrow<T>(scaled(j) + widen(bias[j]));
    } else {
      ZT_APART
      for (int64_t j = 0; j < width; ++j) out[j] = narrow<T>(scaled(j));
    }
  }
}

// With g = dy * weight and h = (x - mean) / deviation: dx = (g - mean(g) - h mean(g h)) / deviation, where RMSNorm has no
// mean(g).
template <Centred centred, class T>
ZT_INLINE void norm_input_loop(T* dx, const T* dy, const T* x, const T* weight, Wide<T> mean, Wide<T> scale, int64_t width) {
  using W = Wide<T>;
  const auto n = static_cast<double>(width);
  const double dot = ordered_sum<W>(
      width, [=](int64_t j) __attribute__((always_inline)) { return widen(dy[j]) * widen(weight[j]) * (widen(x[j]) - mean); });
  const W pull = static_cast<W>(dot / n) * scale * scale;
  W shift = 0;
  if constexpr (centred == Centred::yes) {
    shift = static_cast<W>(ordered_sum<W>(
                               width, [=](int64_t j) __attribute__((always_inline)) { return widen(dy[j]) * widen(weight[j]); }) /
                           n);
  }
  ZT_APART
  for (int64_t j = 0; j < width; ++j) {
    dx[j] = narrow<T>(scale * (widen(dy[j]) * widen(weight[j]) - shift - (widen(x[j]) - mean) * pull));
  }
}

template <Centred centred, class T>
ZT_INLINE void norm_backward_loop(T* dx, Wide<T>* dweight, Wide<T>* dbias, const T* dy, const T* x, const T* weight,
                                  NormStats<const Wide<T>> stats, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, dx += width, dy += width, x += width) {
    const Wide<T> mean = centred == Centred::yes ? stats.mean[r] : 0, scale = stats.reciprocal[r];
    norm_input_loop<centred>(dx, dy, x, weight, mean, scale, width);
    if (dweight) {
      ZT_APART
      for (int64_t j = 0; j < width; ++j) dweight[j] += widen(dy[j]) * (widen(x[j]) - mean) * scale;
    }
    if (dbias) {
      ZT_APART
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
                               NormStats<const Wide<T>> stats, int64_t rows, int64_t width) {                                 \
    if (stats.mean) norm_backward_loop<Centred::yes>(dx, dweight, dbias, dy, x, weight, stats, rows, width);                  \
    else norm_backward_loop<Centred::no>(dx, dweight, dbias, dy, x, weight, stats, rows, width);                              \
  }

ZT_DEFINE_KERNELS(double)
ZT_DEFINE_KERNELS(float)
ZT_DEFINE_KERNELS(c10::BFloat16)
ZT_DEFINE_KERNELS(c10::Half)
#undef ZT_DEFINE_KERNELS

}  // namespace zt::nn::kernels
