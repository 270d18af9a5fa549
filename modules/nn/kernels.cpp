#include "kernels.h"

#include <bit>
#include <cmath>
#include <numbers>

// A sanitizer's run time is not up yet when the loader asks which clone to take. Tests define ZT_CLONES to get one form alone.
#if defined(ZT_CLONES)
#elif defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ZT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ZT_CLONES
#endif
// The loops below are inlined into the clones, which gives each the instructions of its machine.
#define ZT_INLINE inline __attribute__((always_inline))

namespace zt::nn::kernels {

namespace {

constexpr int kLanes = 16;          // partial sums of a row, whatever the vector length
constexpr int64_t kSumBlock = 256;  // elements after which partial sums are folded into a double

// 2^n times the Taylor polynomial of degree 7 on |r| <= ln(2) / 2, where its truncation error is r^8 / 8! < 6e-9.
ZT_INLINE float exponential(float x) {
  constexpr float kLow = -87.3F, kHigh = 88.3F;                      // where 2^n stays a normal number
  constexpr float kRound = 0x1.8p23F;                                // adding it leaves the nearest integer in the low bits
  constexpr float kLn2High = 0x1.62e4p-1F, kLn2Low = 1.4286068e-6F;  // 15 bits, so that n * high is exact
  const float above = x < kLow ? kLow : x;
  const float clamped = above > kHigh ? kHigh : above;
  const float shifted = clamped * std::numbers::log2e_v<float> + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const auto exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127;
  const float result = p * std::bit_cast<float>(exponent << 23);
  return x < kLow ? 0.0F : result;
}
ZT_INLINE double exponential(double x) {
  return std::exp(x);
}

template <class T>
ZT_INLINE T sigmoid(T x) {
  return T(1) / (T(1) + exponential(-x));
}

// sum over i of term(i), in a fixed order.
template <class T, class Term>
ZT_INLINE double ordered_sum(int64_t n, const Term& term) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = begin + kSumBlock < n ? begin + kSumBlock : n;
    T lanes[kLanes] = {};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
    }
    for (int lane = 0; i < end; ++i, ++lane) lanes[lane] += term(i);
    for (const T lane : lanes) total += static_cast<double>(lane);
  }
  return total;
}

// gelu in its tanh form is x * sigmoid(2u), as (1 + tanh(u)) / 2 = sigmoid(2u).
template <class T>
struct Gelu {
  static constexpr T kCubic = T(0.044715);
  static constexpr T kTwice = T(2 * 0.7978845608028653558798921198687);  // 2 sqrt(2 / pi)

  static ZT_INLINE T gate(T x) { return sigmoid(kTwice * (x + kCubic * x * x * x)); }
  static ZT_INLINE T slope(T x, T gate) { return gate + x * gate * (T(1) - gate) * kTwice * (T(1) + T(3) * kCubic * x * x); }
};

template <class T>
ZT_INLINE void gelu_tanh_loop(T* out, const T* pre, const T* bias, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, out += width, pre += width) {
    for (int64_t j = 0; j < width; ++j) {
      const T x = bias ? pre[j] + bias[j] : pre[j];
      out[j] = x * Gelu<T>::gate(x);
    }
  }
}

template <class T>
ZT_INLINE void gelu_tanh_backward_loop(T* grad, T* act, const T* pre, const T* bias, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, grad += width, act += width, pre += width) {
    for (int64_t j = 0; j < width; ++j) {
      const T x = bias ? pre[j] + bias[j] : pre[j];
      const T gate = Gelu<T>::gate(x);
      act[j] = x * gate;
      grad[j] *= Gelu<T>::slope(x, gate);
    }
  }
}

template <class T>
ZT_INLINE void swiglu_loop(T* out, const T* pre, const T* bias, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, out += width, pre += 2 * width) {
    for (int64_t j = 0; j < width; ++j) {
      const T gate = bias ? pre[j] + bias[j] : pre[j];
      const T up = bias ? pre[width + j] + bias[width + j] : pre[width + j];
      out[j] = gate * sigmoid(gate) * up;
    }
  }
}

template <class T>
ZT_INLINE void swiglu_backward_loop(T* dpre, T* act, const T* grad, const T* pre, const T* bias, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, dpre += 2 * width, act += width, grad += width, pre += 2 * width) {
    for (int64_t j = 0; j < width; ++j) {
      const T gate = bias ? pre[j] + bias[j] : pre[j];
      const T up = bias ? pre[width + j] + bias[width + j] : pre[width + j];
      const T s = sigmoid(gate);
      act[j] = gate * s * up;
      dpre[j] = grad[j] * up * s * (T(1) + gate * (T(1) - s));
      dpre[width + j] = grad[j] * gate * s;
    }
  }
}

template <class T>
ZT_INLINE RowStats row_stats_loop(const T* x, int64_t n) {
  T lanes[kLanes];
  for (T& lane : lanes) lane = x[0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lanes[lane] > x[i + lane] ? lanes[lane] : x[i + lane];
  }
  for (; i < n; ++i) lanes[0] = lanes[0] > x[i] ? lanes[0] : x[i];
  T largest = lanes[0];
  for (const T lane : lanes) largest = largest > lane ? largest : lane;
  const double sum = ordered_sum<T>(
      n, [=](int64_t k) __attribute__((always_inline)) { return exponential(x[k] - largest); });
  return {static_cast<double>(largest), sum};
}

template <class T>
ZT_INLINE void scaled_softmax_loop(T* out, const T* x, int64_t n, const RowStats& stats, double scale) {
  const T largest = static_cast<T>(stats.largest), factor = static_cast<T>(scale / stats.sum);
  for (int64_t i = 0; i < n; ++i) out[i] = exponential(x[i] - largest) * factor;
}

template <class T>
ZT_INLINE void rms_norm_loop(T* out, T* reciprocal, const T* x, const T* weight, double eps, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, out += width, x += width) {
    const T* row = x;
    const double squares = ordered_sum<T>(
        width, [=](int64_t j) __attribute__((always_inline)) { return row[j] * row[j]; });
    const T scale = static_cast<T>(1.0 / std::sqrt(squares / static_cast<double>(width) + eps));
    reciprocal[r] = scale;
    for (int64_t j = 0; j < width; ++j) out[j] = x[j] * scale * weight[j];
  }
}

template <class T>
ZT_INLINE void rms_norm_backward_loop(T* dx, const T* dy, const T* x, const T* weight, const T* reciprocal, int64_t rows,
                                      int64_t width) {
  for (int64_t r = 0; r < rows; ++r, dx += width, dy += width, x += width) {
    const T *xr = x, *dyr = dy;
    const double dot = ordered_sum<T>(
        width, [=](int64_t j) __attribute__((always_inline)) { return dyr[j] * weight[j] * xr[j]; });
    const T scale = reciprocal[r];
    const T pull = static_cast<T>(dot / static_cast<double>(width)) * scale * scale;
    for (int64_t j = 0; j < width; ++j) dx[j] = scale * (dy[j] * weight[j] - x[j] * pull);
  }
}

template <class T>
ZT_INLINE void rms_norm_weight_loop(T* dweight, const T* dy, const T* x, const T* reciprocal, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, dy += width, x += width) {
    const T scale = reciprocal[r];
    for (int64_t j = 0; j < width; ++j) dweight[j] += dy[j] * x[j] * scale;
  }
}

template <class T>
ZT_INLINE void scale_kept_loop(T* out, const T* x, const uint8_t* keep, const T* residual, double scale, int64_t n) {
  const T factor = static_cast<T>(scale);
  for (int64_t i = 0; i < n; ++i) {
    const T value = keep[i] ? x[i] * factor : T(0);
    out[i] = residual ? residual[i] + value : value;
  }
}

template <class T>
ZT_INLINE void rotate_loop(T* x, const T* cosine, const T* sine, int64_t half, double sign) {
  const T s = static_cast<T>(sign);
  for (int64_t i = 0; i < half; ++i) {
    const T a = x[i], b = x[half + i];
    x[i] = a * cosine[i] - b * s * sine[i];
    x[half + i] = b * cosine[i] + a * s * sine[i];
  }
}

template <class T>
ZT_INLINE void add_loop(T* to, const T* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

}  // namespace

// Templates cannot have clones, so each type is a full specialisation.
#define ZT_DEFINE_KERNELS(T)                                                                                                 \
  template <>                                                                                                                \
  ZT_CLONES void gelu_tanh(T* out, const T* pre, const T* bias, int64_t rows, int64_t width) {                               \
    gelu_tanh_loop(out, pre, bias, rows, width);                                                                             \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void gelu_tanh_backward(T* grad, T* act, const T* pre, const T* bias, int64_t rows, int64_t width) {             \
    gelu_tanh_backward_loop(grad, act, pre, bias, rows, width);                                                              \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void swiglu(T* out, const T* pre, const T* bias, int64_t rows, int64_t width) {                                  \
    swiglu_loop(out, pre, bias, rows, width);                                                                                \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void swiglu_backward(T* dpre, T* act, const T* grad, const T* pre, const T* bias, int64_t rows, int64_t width) { \
    swiglu_backward_loop(dpre, act, grad, pre, bias, rows, width);                                                           \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES RowStats row_stats(const T* x, int64_t n) {                                                                      \
    return row_stats_loop(x, n);                                                                                             \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void scaled_softmax(T* out, const T* x, int64_t n, const RowStats& stats, double scale) {                        \
    scaled_softmax_loop(out, x, n, stats, scale);                                                                            \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void rms_norm(T* out, T* reciprocal, const T* x, const T* weight, double eps, int64_t rows, int64_t width) {     \
    rms_norm_loop(out, reciprocal, x, weight, eps, rows, width);                                                             \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void rms_norm_backward(T* dx, const T* dy, const T* x, const T* weight, const T* reciprocal, int64_t rows,       \
                                   int64_t width) {                                                                          \
    rms_norm_backward_loop(dx, dy, x, weight, reciprocal, rows, width);                                                      \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void rms_norm_weight(T* dweight, const T* dy, const T* x, const T* reciprocal, int64_t rows, int64_t width) {    \
    rms_norm_weight_loop(dweight, dy, x, reciprocal, rows, width);                                                           \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void scale_kept(T* out, const T* x, const uint8_t* keep, const T* residual, double scale, int64_t n) {           \
    scale_kept_loop(out, x, keep, residual, scale, n);                                                                       \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void rotate(T* x, const T* cosine, const T* sine, int64_t half, double sign) {                                   \
    rotate_loop(x, cosine, sine, half, sign);                                                                                \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void add(T* to, const T* from, int64_t n) {                                                                      \
    add_loop(to, from, n);                                                                                                   \
  }

ZT_DEFINE_KERNELS(float)
ZT_DEFINE_KERNELS(double)

}  // namespace zt::nn::kernels
