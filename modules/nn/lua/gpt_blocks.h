// The options `window` and `context` of nn.gpt, which may differ by block.
#pragma once

#include <optional>
#include <vector>

#include "context/context_axis.h"
#include "zt/base/value.h"

namespace zt::nn {

// Returns the window of each block from nil, a number or a list of one number per block. Throws Misuse for a number below 0, or a
// list of another length.
std::vector<int64_t> windows_of(const Value& window, int64_t blocks);
// Returns the options `context` of a block from nil or a table. Calls method(block) if `method` is a function, and throws the
// function's own error, or Misuse for what it returns.
std::optional<ContextOptions> context_of(const Value& context, int64_t block);

}  // namespace zt::nn
