// The batch field `logits_of`: which tokens of the samples need logits when generating.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace zt::nn {

// Throws Misuse unless `places` is int64 [samples, n] with places of tokens in a sample, each in [0, tokens). On meta the places
// are not read.
void check_logit_places(const at::Tensor& places, int64_t samples, int64_t tokens);

// Returns the rows of h [samples, tokens, hidden] at the places [samples, n]: [samples, n, hidden]. Throws as check_logit_places.
at::Tensor rows_at(const at::Tensor& h, const at::Tensor& places);

}  // namespace zt::nn
