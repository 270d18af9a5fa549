// The function of an MLP whose inner activations exist for a few rows at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include "parts/activation.h"
#include "parts/affine.h"
#include "zt/model/layer.h"

namespace zt::nn {

// Returns activation(x Wup^T + bup) Wdown^T + bdown [..., hidden] with autograd, plus `residual` if it is defined. x: [...,
// hidden], comes over `enter` to the ranks that share the matrices; the result and the residual are those of the ranks' parts.
// The columns between the two matmuls exist for `tile` rows at a time. Only x is kept for the backward, which computes them
// again. It computes the gradients of the weights at once, tile by tile (TileGradient), and passes nothing to Context::defer:
// that would keep the columns of all rows.
at::Tensor tiled_mlp(const MatmulInput& x, Crossing enter, const at::Tensor& residual, const Affine& up, const Affine& down,
                     Activation activation, int64_t tile, Context& context);

}  // namespace zt::nn
