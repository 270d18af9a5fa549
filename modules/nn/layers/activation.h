// The nonlinearity of an MLP, fused with the addition of its bias.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace zt::nn {

enum class Activation : uint8_t { gelu, gelu_tanh, relu, swiglu };

Activation parse_activation(const std::string& name);
std::vector<std::string> activation_names();

// Columns of the product before the activation for `width` columns behind it: twice as many for swiglu (gate, then up).
int64_t columns_before(Activation activation, int64_t width);

// activation(pre + bias). pre: [rows, columns_before(width)], contiguous; bias: [columns_before(width)] or undefined.
// Returns [rows, width].
at::Tensor activate(Activation activation, const at::Tensor& pre, const at::Tensor& bias);

struct ActivationGradient {
  at::Tensor pre;    // the gradient of `pre`
  at::Tensor value;  // the activation once more, so that nobody has to keep it
};
// grad: [rows, width], the gradient of the activation; may be overwritten.
ActivationGradient activate_backward(Activation activation, at::Tensor grad, const at::Tensor& pre, const at::Tensor& bias);

}  // namespace zt::nn
