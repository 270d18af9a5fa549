// Helpers of the layers' autograd functions.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/model/layer.h"

namespace zt::nn {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Keeps a C++ value in an autograd node until its backward. A node can keep one value.
template <class T>
struct Kept : torch::CustomClassHolder {
  explicit Kept(T v) : value(std::move(v)) {}
  T value;
};
template <class T>
void keep(AutogradContext* node, T value) {
  node->saved_data["kept"] = c10::IValue::make_capsule(c10::make_intrusive<Kept<T>>(std::move(value)));
}
template <class T>
T& kept(AutogradContext* node) {
  return c10::static_intrusive_pointer_cast<Kept<T>>(node->saved_data.at("kept").toCapsule())->value;
}

// Returns F::forward(node, args...), with a node if autograd records one. Else neither it nor what LibTorch's operators note for
// autograd is needed: they would take a tenth of a step that generates one token.
template <class F, class... Args>
auto run_function(Args&&... args) {
  if (at::GradMode::is_enabled()) return F::apply(std::forward<Args>(args)...);
  AutogradContext unused;
  const at::AutoDispatchBelowADInplaceOrView without_notes;
  return F::forward(&unused, std::forward<Args>(args)...);
}

// Converts between undefined tensors and optionals: autograd functions refuse undefined tensors as arguments.
inline std::optional<at::Tensor> maybe(const at::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}
inline at::Tensor value_or_none(const std::optional<at::Tensor>& x) {
  return x ? *x : at::Tensor();
}

// Returns the dtype of a parameter of the running layer, to which x is converted: a batch field or another layer may give float32
// to a layer in bfloat16. The gradient has the dtype of x. Throws Misuse if x is not floating-point.
inline at::ScalarType dtype_for(const Param& param, const at::Tensor& x, Context& context) {
  if (!x.is_floating_point()) misuse("'{}' takes floating-point numbers, got {}", param.name, describe(x));
  return context.param(param).scalar_type();
}
inline at::Tensor in_dtype(at::ScalarType dtype, const at::Tensor& x) {
  return x.scalar_type() == dtype ? x : x.to(dtype);
}
inline at::Tensor in_dtype_of(const Param& param, const at::Tensor& x, Context& context) {
  return in_dtype(dtype_for(param, x, context), x);
}

// Returns `rows` [rows, n] in the shape of `like`, except that the last dim is n. For autograd, the result is not a view.
inline at::Tensor in_shape_of(const at::Tensor& like, const at::Tensor& rows) {
  if (like.dim() == 2) return rows;
  auto shape = like.sizes().vec();
  shape.back() = rows.size(-1);
  return at::_unsafe_view(rows, shape);
}

}  // namespace zt::nn
