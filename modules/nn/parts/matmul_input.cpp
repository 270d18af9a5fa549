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
  return {run_function<RecomputedFunction>(x, function, second), [second] { return second->value(); }};
}

MatmulInput MatmulInput::to(at::ScalarType dtype) const {
  if (value.scalar_type() == dtype || !again) return {in_dtype(dtype, value), again};
  return {value.to(dtype), [make = again, dtype] { return make().to(dtype); }};
}

void InputRows::begin_again(const at::Tensor& saved) {
  saved_ = saved;
  if (is_needed_ && enter_.overlaps_to_parts()) moved_ = move();
}

at::Tensor InputRows::again() {
  if (!is_needed_) return {};
  return as_rows((enter_.overlaps_to_parts() ? std::exchange(moved_, {}) : move()).wait());
}

MoveResult InputRows::move() {
  const at::Tensor saved = std::exchange(saved_, {});
  return enter_.to_parts(again_ ? std::exchange(again_, {})() : saved);
}

}  // namespace zt::nn
