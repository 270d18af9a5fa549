#include "activation.h"

#include "cpu/kernels.h"
#include "cuda/device_activation.h"
#include "cuda/device_call.h"
#include "zt/base/rows.h"

namespace zt::nn {

int64_t columns_before(Activation activation, int64_t width) {
  return activation == Activation::swiglu ? 2 * width : width;
}

namespace {

// Returns the input of ATen's activations. For 16-bit dtypes this sum is rounded; the fused activations do not round it.
at::Tensor biased(const at::Tensor& pre, const at::Tensor& bias) {
  return bias.defined() ? pre + bias : pre;
}

at::Tensor fused(Activation activation, const at::Tensor& pre, const at::Tensor& bias) {
  const int64_t before = pre.size(1), width = activation == Activation::swiglu ? before / 2 : before;
  at::Tensor out = at::empty({pre.size(0), width}, pre.options());
  for_dtype(pre, [&](auto zero) {
    using T = decltype(zero);
    const T *in = pre.const_data_ptr<T>(), *b = data_or_null<T>(bias);
    T* to = out.data_ptr<T>();
    const int64_t rows = pre.size(0);
    if (activation == Activation::swiglu ? on_gpu(pre, device::Swiglu<T>{to, in, b, rows, width})
                                         : on_gpu(pre, device::GeluTanh<T>{to, in, b, rows, width})) {
      return;
    }
    const auto kernel = activation == Activation::swiglu ? kernels::swiglu<T> : kernels::gelu_tanh<T>;
    for_rows(rows, before,
             [&](int64_t begin, int64_t end) { kernel(to + begin * width, in + begin * before, b, end - begin, width); });
  });
  return out;
}

ActivationGradient gelu_tanh_backward(at::Tensor grad, const at::Tensor& pre, const at::Tensor& bias) {
  at::Tensor value = at::empty_like(pre);
  const int64_t width = pre.size(1);
  for_dtype(pre, [&](auto zero) {
    using T = decltype(zero);
    T *g = grad.data_ptr<T>(), *v = value.data_ptr<T>();
    const T *in = pre.const_data_ptr<T>(), *b = data_or_null<T>(bias);
    if (on_gpu(pre, device::GeluTanhBackward<T>{g, v, in, b, pre.size(0), width})) return;
    for_rows(pre.size(0), width, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * width;
      kernels::gelu_tanh_backward(g + at, v + at, in + at, b, end - begin, width);
    });
  });
  return {grad, value};
}

ActivationGradient swiglu_backward(const at::Tensor& grad, const at::Tensor& pre, const at::Tensor& bias) {
  const int64_t width = grad.size(1);
  ActivationGradient result{at::empty_like(pre), at::empty_like(grad)};
  for_dtype(pre, [&](auto zero) {
    using T = decltype(zero);
    T *dpre = result.pre.data_ptr<T>(), *v = result.value.data_ptr<T>();
    const T *g = grad.const_data_ptr<T>(), *in = pre.const_data_ptr<T>(), *b = data_or_null<T>(bias);
    if (on_gpu(pre, device::SwigluBackward<T>{dpre, v, g, in, b, pre.size(0), width})) return;
    for_rows(pre.size(0), 2 * width, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * width;
      kernels::swiglu_backward(dpre + 2 * at, v + at, g + at, in + 2 * at, b, end - begin, width);
    });
  });
  return result;
}

}  // namespace

at::Tensor activate(Activation activation, const at::Tensor& pre, const at::Tensor& bias) {
  switch (activation) {
    case Activation::gelu:
      return at::gelu(biased(pre, bias));
    case Activation::relu:
      return at::clamp_min(biased(pre, bias), 0);
    default:
      return fused(activation, pre, bias);
  }
}

ActivationGradient activate_backward(Activation activation, at::Tensor grad, const at::Tensor& pre, const at::Tensor& bias) {
  if (activation == Activation::gelu_tanh) return gelu_tanh_backward(grad, pre, bias);
  if (activation == Activation::swiglu) return swiglu_backward(grad, pre, bias);
  const at::Tensor x = biased(pre, bias);
  if (activation == Activation::gelu) return {at::gelu_backward(grad, x), at::gelu(x)};
  return {at::threshold_backward(grad, x, 0), at::clamp_min(x, 0)};
}

}  // namespace zt::nn
