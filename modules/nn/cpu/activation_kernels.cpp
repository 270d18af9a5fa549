#include "gelu.h"
#include "vector.h"

namespace zt::nn::kernels {

namespace {

// Returns the factor of x in gelu_tanh(x).
template <class W>
ZT_INLINE W gelu_gate(W x) {
  return sigmoid(Gelu<W>::twice_u(x));
}

// A template argument of the loops: with 16-bit numbers, the compiler would not move the check for a bias out of the loop.
enum class HasBias : uint8_t { no, yes };

// Returns pre[j] + bias[j], without bias[j] if there is none.
template <HasBias has, class T>
ZT_INLINE Wide<T> biased(const T* pre, const T* bias, int64_t j) {
  if constexpr (has == HasBias::yes) return widen(pre[j]) + widen(bias[j]);
  else return widen(pre[j]);
}

template <HasBias has, class T>
ZT_INLINE void gelu_tanh_loop(T* out, const T* pre, const T* bias, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, out += width, pre += width) {
    ZT_NO_OVERLAP
    for (int64_t j = 0; j < width; ++j) {
      const Wide<T> x = biased<has>(pre, bias, j);
      out[j] = narrow<T>(x * gelu_gate(x));
    }
  }
}

template <HasBias has, class T>
ZT_INLINE void gelu_tanh_backward_loop(T* grad, T* act, const T* pre, const T* bias, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, grad += width, act += width, pre += width) {
    ZT_NO_OVERLAP
    for (int64_t j = 0; j < width; ++j) {
      const Wide<T> x = biased<has>(pre, bias, j), gate = gelu_gate(x);
      act[j] = narrow<T>(x * gate);
      grad[j] = narrow<T>(widen(grad[j]) * Gelu<Wide<T>>::slope(x, gate));
    }
  }
}

template <HasBias has, class T>
ZT_INLINE void swiglu_loop(T* out, const T* pre, const T* bias, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, out += width, pre += 2 * width) {
    ZT_NO_OVERLAP
    for (int64_t j = 0; j < width; ++j) {
      const Wide<T> gate = biased<has>(pre, bias, j), up = biased<has>(pre, bias, width + j);
      out[j] = narrow<T>(gate * sigmoid(gate) * up);
    }
  }
}

template <HasBias has, class T>
ZT_INLINE void swiglu_backward_loop(T* dpre, T* act, const T* grad, const T* pre, const T* bias, int64_t rows, int64_t width) {
  using W = Wide<T>;
  for (int64_t r = 0; r < rows; ++r, dpre += 2 * width, act += width, grad += width, pre += 2 * width) {
    ZT_NO_OVERLAP
    for (int64_t j = 0; j < width; ++j) {
      const W gate = biased<has>(pre, bias, j), up = biased<has>(pre, bias, width + j), g = widen(grad[j]);
      const W s = sigmoid(gate);
      act[j] = narrow<T>(gate * s * up);
      dpre[j] = narrow<T>(g * up * s * (W(1) + gate * (W(1) - s)));
      dpre[width + j] = narrow<T>(g * gate * s);
    }
  }
}

}  // namespace

// target_clones does not work for templates, so each type is a full specialisation.
#define ZT_DEFINE_KERNELS(T)                                                                                                 \
  template <>                                                                                                                \
  ZT_CLONES void gelu_tanh(T* out, const T* pre, const T* bias, int64_t rows, int64_t width) {                               \
    if (bias) gelu_tanh_loop<HasBias::yes>(out, pre, bias, rows, width);                                                     \
    else gelu_tanh_loop<HasBias::no>(out, pre, bias, rows, width);                                                           \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void gelu_tanh_backward(T* grad, T* act, const T* pre, const T* bias, int64_t rows, int64_t width) {             \
    if (bias) gelu_tanh_backward_loop<HasBias::yes>(grad, act, pre, bias, rows, width);                                      \
    else gelu_tanh_backward_loop<HasBias::no>(grad, act, pre, bias, rows, width);                                            \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void swiglu(T* out, const T* pre, const T* bias, int64_t rows, int64_t width) {                                  \
    if (bias) swiglu_loop<HasBias::yes>(out, pre, bias, rows, width);                                                        \
    else swiglu_loop<HasBias::no>(out, pre, bias, rows, width);                                                              \
  }                                                                                                                          \
  template <>                                                                                                                \
  ZT_CLONES void swiglu_backward(T* dpre, T* act, const T* grad, const T* pre, const T* bias, int64_t rows, int64_t width) { \
    if (bias) swiglu_backward_loop<HasBias::yes>(dpre, act, grad, pre, bias, rows, width);                                   \
    else swiglu_backward_loop<HasBias::no>(dpre, act, grad, pre, bias, rows, width);                                         \
  }

ZT_DEFINE_KERNELS(double)
ZT_DEFINE_KERNELS(float)
ZT_DEFINE_KERNELS(c10::BFloat16)
ZT_DEFINE_KERNELS(c10::Half)
#undef ZT_DEFINE_KERNELS

}  // namespace zt::nn::kernels
