// The loops over a block of a flat shard that an optimizer in Lua does not write itself.
#pragma once

#include <ATen/core/Tensor.h>

namespace zt::lua {

// to = from * scale, with the bits of ATen's operators. Both are flat and of one length; `from` may be 16-bit, or any type that
// the type of `to` holds.
void scale_into(const at::Tensor& to, const at::Tensor& from, double scale);

// Returns false if an element is infinite or a NaN, and perhaps where the elements' sum overflows.
bool seems_finite(const at::Tensor& values);

}  // namespace zt::lua
