// Random numbers of a router. They depend on the token's place in its sample, and on the sample's in the global batch, so they
// are the same on any mesh.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "zt/model/layer.h"

namespace zt::moe {

// Numbers for each token of each sample that this rank has.
struct TokenShape {
  int64_t samples, tokens, width;
};

// Each returns [samples * tokens, width] in float64, in host memory.
at::Tensor normal_noise(const TokenShape& shape, Context& context);
// Uniform numbers in [0, 1).
at::Tensor uniform_noise(const TokenShape& shape, Context& context);
// -log(-log(u)) of uniform u: the largest of logits plus this noise is a draw from their softmax.
at::Tensor gumbel_noise(const TokenShape& shape, Context& context);
// Uniform numbers between 1 - width and 1 + width.
at::Tensor jitter_factors(const TokenShape& shape, double width, Context& context);

}  // namespace zt::moe
