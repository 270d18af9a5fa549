// Options of nn.grouped_mlp for its tests.
#pragma once

#include <string>

#include "zt/base/value.h"

namespace zt::nn {

// Widths are multiples of 64 bytes in all dtypes, so the rows of each group are aligned like those of a separate tensor. A
// library for GEMMs may choose another order of sums for unaligned memory.
constexpr int64_t kHidden = 32, kFfn = 64;

inline Value::Table options_of(int64_t groups, const std::string& activation = "swiglu", bool bias = true) {
  return {{"groups", groups}, {"hidden", kHidden}, {"ffn", kFfn},        {"activation", activation},
          {"bias", bias},     {"std", 0.3},        {"residual_std", 0.3}};
}

}  // namespace zt::nn
