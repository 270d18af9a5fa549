// Moves the keys and values of samples whose tokens are cut over ranks. Without autograd, but for the exchanges of heads and
// tokens.
//
// Dims: B samples, T tokens of all ranks, C columns. On device meta the functions compute shapes only. They note what they send.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "attention/attention_tiled.h"
#include "zt/model/layer.h"

namespace zt::nn {

// Attention to tokens of an axis, in a forward and its backward. The context lives until the backward is done.
struct ContextCall {
  AttentionInputs inputs;
  Context* context;
  std::string axis;

  const TokenPlaces& places() const { return context->tokens(); }
  int ranks() const { return static_cast<int>(places().of_rank.size()); }
  const std::vector<Share>& ranges(int rank) const { return places().of_rank[static_cast<size_t>(rank)]; }
  int64_t count(int rank) const { return places().count(rank); }
  Communicator& comm() const { return context->comm(axis); }
  void sent(int64_t elements, const at::Tensor& of, Pattern pattern) const {
    context->sent(axis, elements * static_cast<int64_t>(of.element_size()), pattern);
  }
};

// Returns the whole dim of tokens from the ranks' parts, [N, B, T, C] from [N, B, the rank's tokens, C].
at::Tensor gather_tokens(const ContextCall& call, const at::Tensor& own);
// Returns this rank's tokens of the sum over ranks, [N, B, the rank's tokens, C] from [N, B, T, C].
at::Tensor scatter_token_sums(const ContextCall& call, const at::Tensor& whole);
// Returns the segments of whole samples [B, T], or an undefined tensor if there are none.
at::Tensor whole_segments(const ContextCall& call);

// A tensor on its way from the rank before, and the one on its way to the next rank.
struct PassedTensor {
  at::Tensor received, sent;
  Work work;
};
// Starts to send a tensor to the next rank, and to receive one of the shape `shape` from the rank before.
PassedTensor pass_to_next(const ContextCall& call, const at::Tensor& sent, at::IntArrayRef shape);

// Which columns of a token each rank has after an exchange of heads and tokens. Ranks may have columns in common.
using ColumnsOfRanks = std::vector<std::vector<Share>>;
// Return, with autograd, all tokens of this rank's columns [B, T, its columns] from all columns of its tokens [B, S, C], and
// back. On the way back the ranks' numbers of a column that several have are summed, in rank order and in the wide dtype.
at::Tensor exchange_to_heads(const ContextCall& call, const ColumnsOfRanks& columns, const at::Tensor& x);
at::Tensor exchange_to_tokens(const ContextCall& call, const ColumnsOfRanks& columns, const at::Tensor& x);

}  // namespace zt::nn
