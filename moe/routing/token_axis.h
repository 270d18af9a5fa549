// The tokens of samples that a rank has: all, or some of them if a mesh axis cuts the tokens (context parallelism).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "zt/model/layer.h"

namespace zt::moe {

// Returns whether this rank has some tokens of each sample only.
bool has_cut_tokens(Context& context);
// Returns where the rank's tokens are in a sample, in ascending ranges, of which the rank has `tokens` in total. Throws Misuse if
// tokens are cut and the rank has another number of them.
std::vector<Share> token_places(int64_t tokens, Context& context);

// Sums numbers in host memory over the ranks along an axis, in place, and notes the bytes that are sent. On device meta it only
// notes them.
void sum_along(const std::string& axis, const at::Tensor& sums, Context& context);

}  // namespace zt::moe
