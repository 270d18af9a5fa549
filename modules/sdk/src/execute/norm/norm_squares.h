// What the two ways to sum squares share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "execute/norm/norm_order.h"
#include "zt/model/unit.h"

namespace zt {

static_assert(kNormBlock == FlatLayout::kBlock);

// Throws Misuse unless a norm may be taken of elements [begin, end) of `flat`.
void check_squares(const at::Tensor& flat, int64_t begin, int64_t end);

}  // namespace zt
