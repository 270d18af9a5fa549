// How tensors get from the residual stream to the ranks that share a matrix, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "zt/model/axis_ops.h"
#include "zt/model/layer.h"

namespace zt::nn {

// The border between the residual stream and the ranks' parts of a layer's work, without autograd. A gradient crosses it the
// other way. By default there is one rank, and tensors stay as they are.
class Crossing {
 public:
  Crossing() = default;
  // In the stream the ranks of `axis` have equal tensors, or, if `tokens` is given, their shares of so many tokens in dim 1.
  // `sums`: the type in which parts are summed. `overlap`: whether moves go on beside computation.
  Crossing(Context& context, std::string axis, std::optional<int64_t> tokens, SumDtype sums, bool overlap)
      : context_(&context), axis_(std::move(axis)), tokens_(tokens), sums_(sums), overlap_(overlap) {}

  // Returns whether to_parts gives another tensor: that of all tokens.
  bool gathers() const { return tokens_.has_value(); }
  // Return whether tensors that go to the parts, and those that go to the stream, are sent while the rank computes.
  bool overlaps_to_parts() const { return overlap_ && gathers(); }
  bool overlaps_to_stream() const { return overlap_ && context_; }
  // Returns the rows of x [..., columns] after to_parts.
  int64_t rows(const at::Tensor& x) const {
    return gathers() ? x.size(0) * *tokens_ : x.numel() / std::max<int64_t>(1, x.size(-1));
  }
  // Returns the sizes of x after to_parts.
  std::vector<int64_t> sizes(const at::Tensor& x) const {
    auto sizes = x.sizes().vec();
    if (gathers()) sizes[1] = *tokens_;
    return sizes;
  }
  // Returns `rows` [rows, columns] of the parts with the dims that `like`, of the stream, has there.
  at::Tensor shaped(const at::Tensor& rows, const at::Tensor& like) const;
  MoveResult to_parts(const at::Tensor& x) const;
  // Returns the sum of the ranks' parts, or this rank's tokens of it.
  MoveResult to_stream(const at::Tensor& part) const;

 private:
  Async async() const { return overlap_ ? Async::yes : Async::no; }

  Context* context_ = nullptr;
  std::string axis_;
  std::optional<int64_t> tokens_;
  SumDtype sums_;
  bool overlap_ = false;
};

// Computes on x [..., columns], which comes to the parts over `enter` and whose result goes to the stream over `leave`: in pieces
// if one of them sends something beside computation. compute(x, first): x of a piece, of which
// `first` rows came before, all without the last dim; returns its result, of the same dims but the last. Returns the results of
// the pieces.
std::vector<MoveResult> cross(const at::Tensor& x, const Crossing& enter, const Crossing& leave,
                              const std::function<at::Tensor(const at::Tensor& x, int64_t first)>& compute);
// Returns rows, one after the other.
at::Tensor joined_rows(const std::vector<at::Tensor>& rows);
// Waits for the pieces and joins them, in the shape of `like` but for the last dim and, where tokens are cut, dim 1.
at::Tensor joined_pieces(const std::vector<MoveResult>& pieces, const at::Tensor& like);

}  // namespace zt::nn
