#include "matmul_input.h"

#include <torch/csrc/autograd/autograd.h>

#include "function.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

// A function of x, run a second time when its result or its gradient is first needed.
class SecondRun {
 public:
  SecondRun(at::Tensor x, std::function<at::Tensor(const at::Tensor&)> function)
      : x_(std::move(x)), function_(std::move(function)) {}

  at::Tensor value() {
    run();
    return result_.detach();
  }
  // Returns the gradient of x from that of the result. Frees both.
  at::Tensor gradient(const at::Tensor& of_result) {
    run();
    const variable_list gradients = torch::autograd::grad({std::exchange(result_, {})}, {x_}, {of_result});
    x_.reset();
    return gradients.front();
  }

 private:
  void run() {
    if (result_.defined()) return;
    const at::AutoGradMode with_grad(true);
    x_.set_requires_grad(true);
    result_ = function_(x_);
    function_ = {};
  }

  at::Tensor x_, result_;
  std::function<at::Tensor(const at::Tensor&)> function_;
};

struct RecomputedFunction : torch::autograd::Function<RecomputedFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& x,
                            const std::function<at::Tensor(const at::Tensor&)>& function, std::shared_ptr<SecondRun> second) {
    keep(node, std::move(second));
    return function(x);
  }
  static variable_list backward(AutogradContext* node, variable_list grads) {
    return {kept<std::shared_ptr<SecondRun>>(node)->gradient(grads[0]), {}, {}};
  }
};

}  // namespace

MatmulInput recomputed(const at::Tensor& x, std::function<at::Tensor(const at::Tensor&)> function) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return function(x);
  const auto second = std::make_shared<SecondRun>(x.detach(), function);
  return {RecomputedFunction::apply(x, function, second), [second] { return second->value(); }};
}

MatmulInput MatmulInput::to(at::ScalarType dtype) const {
  if (value.scalar_type() == dtype || !again) return {value.to(dtype), again};
  return {value.to(dtype), [make = again, dtype] { return make().to(dtype); }};
}

MoveResult Entrance::start(const at::Tensor& x) const {
  return gathers() ? start_gather(*context_, axis_, x, 1, *tokens_, async_) : MoveResult{x, {}};
}

MoveResult Entrance::start_gradient(const at::Tensor& part) const {
  if (!context_) return {part, {}};
  return gathers() ? start_share_of_sum(*context_, axis_, part, 1, sums_, async_)
                   : start_sum(*context_, axis_, part, sums_, async_);
}

InputRows::Entered InputRows::enter(const at::Tensor& x) const {
  const at::Tensor value = entrance_.start(x).wait(), rows = as_rows(value);
  return {value, rows, again_ ? at::Tensor() : entrance_.gathers() ? x : rows};
}

MoveResult InputRows::start_again(const at::Tensor& saved) {
  return entrance_.start(again_ ? std::exchange(again_, {})() : saved);
}

}  // namespace zt::nn
