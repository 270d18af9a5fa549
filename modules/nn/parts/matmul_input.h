// What a matmul multiplies, and how its backward gets it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "crossing.h"

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

// The input of a matmul of cut matrices, from its forward to its backward.
class InputRows {
 public:
  // `is_needed`: the matrix has a gradient, which is not so if it is frozen. Equal on all ranks.
  InputRows(const MatmulInput& x, Crossing enter, bool is_needed = true)
      : again_(x.again), enter_(std::move(enter)), is_needed_(is_needed) {}

  const Crossing& enter() const { return enter_; }
  // Returns what the node saves of x for `begin_again`; undefined: nothing.
  at::Tensor saved(const at::Tensor& x) const { return again_ || !is_needed_ ? at::Tensor() : x; }
  // Prepares `again` in the backward: if moves go on beside computation, the tokens of other ranks are on their way from now on.
  // `saved`: what the node saved.
  void begin_again(const at::Tensor& saved);
  // Returns the value of the forward once more: x of all tokens, [rows, in]; undefined if it is not needed. To be called once,
  // after begin_again. Without overlap its memory is allocated only now, so the caller should have freed what it no longer needs.
  at::Tensor again();

 private:
  MoveResult move();

  std::function<at::Tensor()> again_;
  Crossing enter_;
  bool is_needed_;
  at::Tensor saved_;
  MoveResult moved_;
};

}  // namespace zt::nn
