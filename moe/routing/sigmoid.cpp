#include "routing/sigmoid.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

namespace zt::moe {

namespace {

at::Tensor sigmoid_values(const at::Tensor& x) {
  if (x.is_cuda() || x.is_meta()) return x.sigmoid();
  if (!x.is_cpu()) return sigmoid_values(x.cpu()).to(x.device());  // a device that computes as the CPU does
  const at::Tensor from = x.contiguous(), to = at::empty_like(from);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "sigmoid_by_element", [&] {
    using Wide = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    const auto* const source = from.const_data_ptr<scalar_t>();
    auto* const target = to.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, from.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        target[i] = static_cast<scalar_t>(Wide{1} / (Wide{1} + std::exp(-static_cast<Wide>(source[i]))));
    });
  });
  return to;
}

struct SigmoidFunction : torch::autograd::Function<SigmoidFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* node, const at::Tensor& x) {
    const at::Tensor y = sigmoid_values(x);
    node->save_for_backward({y});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* node, torch::autograd::variable_list grads) {
    const at::Tensor y = node->get_saved_variables()[0];
    return {grads[0] * y * (1 - y)};
  }
};

}  // namespace

at::Tensor sigmoid_by_element(const at::Tensor& x) {
  return SigmoidFunction::apply(x);
}

}  // namespace zt::moe
