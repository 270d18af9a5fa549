// Which tokens count in the loads, the losses and the statistics of a router.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "zt/model/layer.h"

namespace zt::moe {

struct TokenShape {
  int64_t samples, tokens;
};

// Returns bool [samples * tokens] in host memory; undefined if all tokens count. `mask` names a batch field [samples, tokens]
// with a number other than 0 (or true) for tokens that count. "none": all count. Empty: the field `loss_mask`; without it those
// of which the field `padding`, from data.documents, is false; without both, all count. Throws Misuse if the field is missing or
// of another shape.
at::Tensor counted_tokens(const TokenShape& shape, const std::string& mask, Context& context);

}  // namespace zt::moe
