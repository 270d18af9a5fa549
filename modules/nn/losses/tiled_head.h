// The head of a language model and its cross-entropy, whose logits exist for a few rows at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include "parts/affine.h"
#include "softmax_loss.h"
#include "zt/model/layer.h"

namespace zt::nn {

// Returns loss.sum(h W^T + b) with autograd. h: [samples, tokens, hidden], comes over `enter` to the ranks that share W. There is
// one buffer of logits [tile, classes of this rank], in the forward and again in the backward, which computes the logits a second
// time; between them only h and the statistics of the rows are kept. The backward computes the gradients of the weights at once,
// tile by tile (TileGradient), and passes nothing to Context::defer: that would keep all logits.
at::Tensor tiled_head_loss(const at::Tensor& h, Crossing enter, const Affine& head, SoftmaxLoss loss, int64_t tile,
                           Context& context);

}  // namespace zt::nn
