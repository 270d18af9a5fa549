// The formulas of the activation gelu_tanh, for the processor and for GPUs.
#pragma once

#include "zt/base/float16.h"

namespace zt::nn::kernels {

// gelu_tanh(x) = x * gate, where gate = (1 + tanh(u)) / 2 = sigmoid(2u), with u = sqrt(2 / pi) (x + 0.044715 x^3).
template <class W>
struct Gelu {
  static constexpr W kCubic = W(0.044715);
  static constexpr W kTwice = W(2 * 0.7978845608028653558798921198687);  // 2 sqrt(2 / pi)

  // Returns 2u.
  ZT_PER_ELEMENT static W twice_u(W x) { return kTwice * (x + kCubic * x * x * x); }
  // Returns the derivative of gelu_tanh at x.
  ZT_PER_ELEMENT static W slope(W x, W gate) { return gate + x * gate * (W(1) - gate) * kTwice * (W(1) + W(3) * kCubic * x * x); }
};

}  // namespace zt::nn::kernels
