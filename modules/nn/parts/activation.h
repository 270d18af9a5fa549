// The nonlinearity of an MLP, fused with the addition of its bias.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace zt::nn {

enum class Activation : uint8_t { gelu, gelu_tanh, relu, swiglu };

constexpr auto words_of(Activation) {
  return std::array{"gelu", "gelu_tanh", "relu", "swiglu"};
}

// Returns the columns of the activation's input if its output has `width` columns: 2 * width for swiglu (gate, then up), else
// width.
int64_t columns_before(Activation activation, int64_t width);

// Returns activation(pre + bias) [rows, width]. pre: [rows, columns_before(width)], contiguous. bias: [columns_before(width)] or
// undefined.
at::Tensor activate(Activation activation, const at::Tensor& pre, const at::Tensor& bias);

struct ActivationGradient {
  at::Tensor pre;    // the gradient of `pre`
  at::Tensor value;  // the output of the activation, computed again so that the forward need not keep it
};
// grad: [rows, width], the gradient of the activation's output; may be overwritten.
ActivationGradient activate_backward(Activation activation, at::Tensor grad, const at::Tensor& pre, const at::Tensor& bias);

}  // namespace zt::nn
