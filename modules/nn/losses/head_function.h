// The head of a language model and a function of its logits, such as the cross-entropy, as one autograd function.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "logit_function.h"
#include "parts/affine.h"
#include "zt/model/layer.h"

namespace zt::nn {

// Returns function.total() of the logits h W^T + b, with autograd. h: [samples, tokens, hidden], comes over `enter` to the ranks
// that share W.
//
// With a `tile` of 0 there is one buffer of logits [rows, classes of this rank]; the backward overwrites it with their gradient,
// so it can run only once. Otherwise the buffer has `tile` rows, in the forward and again in the backward, which computes the
// logits a second time; between them only h and the statistics of the rows are kept. Such a backward computes the gradients of
// the weights at once, tile by tile (TileGradient), and passes nothing to Context::defer: that would keep all logits.
std::vector<at::Tensor> head_function(const at::Tensor& h, Crossing enter, const Affine& head,
                                      std::shared_ptr<LogitFunction> function, int64_t tile, Context& context);

}  // namespace zt::nn
