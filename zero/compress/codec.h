// Codes of blocks of 256 numbers in a few bits each, with one scale per block. Pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "zt/base/isa.h"

namespace zt::zero {

constexpr int64_t kCodeBlock = 256;  // elements

class Codec {
 public:
  virtual ~Codec();
  virtual int64_t block_bytes() const = 0;
  // Both: `values` [n], float32 or float64, contiguous, and `bytes` uint8 [n / 256 * block_bytes], with n a multiple of 256.
  // The bits do not depend on `isa`.
  // Encodes the values, which must be finite, and leaves in them what the codes lack.
  virtual void encode(const at::Tensor& values, const at::Tensor& bytes, Isa isa = best_isa()) const = 0;
  // Adds the encoded values.
  virtual void decode_add(const at::Tensor& bytes, const at::Tensor& values, Isa isa = best_isa()) const = 0;
};

// A byte per number: round(x / scale) with scale = max |x| / 127, to nearest even. The scale is a float32 at the end of a block.
const Codec& int8_codec();
// A bit per number: its sign, with scale = mean |x|.
const Codec& onebit_codec();

}  // namespace zt::zero
