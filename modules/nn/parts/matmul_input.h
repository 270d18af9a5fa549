// What a matmul multiplies, and how its backward gets it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

#include "zt/model/axis_ops.h"
#include "zt/model/layer.h"

namespace zt::nn {

// The input of a matmul. A tensor converts to it.
struct MatmulInput {
  MatmulInput(const at::Tensor& x) : value(x) {}
  MatmulInput(const at::Tensor& x, std::function<at::Tensor()> make) : value(x), again(std::move(make)) {}
  MatmulInput to(at::ScalarType dtype) const;
  at::Tensor value;
  // Computes the value once more, in the backward and without autograd. Empty: the value is kept until then.
  std::function<at::Tensor()> again = {};
};

// What layers compute again in their backward instead of keeping it.
enum class LayerRecompute : uint8_t {
  none,
  selective,  // the results of norms, activations, the attention core and dropout's draws, but no matmul
};
constexpr auto words_of(LayerRecompute) {
  return std::array{"none", "selective"};
}

// Returns function(x) for a matmul. Of what the function's backward needs only x is kept: the backward runs the function again.
// It has no gradients but that of x and those that it adds to sinks, and does not change x.
MatmulInput recomputed(const at::Tensor& x, std::function<at::Tensor(const at::Tensor&)> function);

// The way of a matmul's input to the ranks that share the matrix, and of its gradient back, without autograd. By default there is
// one rank, and both stay as they are.
class Entrance {
 public:
  Entrance() = default;
  // The ranks of `axis` have equal x, or, if `tokens` is given, their shares of so many tokens in dim 1 of x. `sums`: the type in
  // which gradients are summed. With Async::yes the moves go on beside matmuls.
  Entrance(Context& context, std::string axis, std::optional<int64_t> tokens, SumDtype sums, Async async)
      : context_(&context), axis_(std::move(axis)), tokens_(tokens), sums_(sums), async_(async) {}

  // Returns whether `start` gives another tensor.
  bool gathers() const { return tokens_.has_value(); }
  // Returns what the rank multiplies: x of all tokens.
  MoveResult start(const at::Tensor& x) const;
  // Returns the gradient of x from this rank's part of the gradient of what it multiplies.
  MoveResult start_gradient(const at::Tensor& part) const;

 private:
  Context* context_ = nullptr;
  std::string axis_;
  std::optional<int64_t> tokens_;
  SumDtype sums_;
  Async async_ = Async::no;
};

// The rows of a matmul's input, from its forward to its backward.
class InputRows {
 public:
  InputRows(const MatmulInput& x, Entrance entrance) : again_(x.again), entrance_(std::move(entrance)) {}

  struct Entered {
    at::Tensor value;  // x of all tokens
    at::Tensor rows;   // the same, [rows, columns]
    at::Tensor saved;  // what the node saves for `start_again`; undefined: nothing
  };
  Entered enter(const at::Tensor& x) const;
  // Returns the value of the forward once more, in the backward. `saved`: what `enter` returned. Called at most once.
  MoveResult start_again(const at::Tensor& saved);
  const Entrance& entrance() const { return entrance_; }

 private:
  std::function<at::Tensor()> again_;
  Entrance entrance_;
};

}  // namespace zt::nn
