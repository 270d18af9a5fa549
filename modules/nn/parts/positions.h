// The positions of tokens in their documents.
#pragma once

#include <ATen/ATen.h>

#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/model/layer.h"

namespace zt::nn {

// Returns the batch's "positions" [samples, seq] int64, or 0 .. seq - 1 as [1, seq] int64 on `device` if it has none. Throws
// Misuse if the batch's positions have another dtype or shape.
inline at::Tensor positions_of(Context& context, int64_t samples, int64_t seq, at::Device device = at::kCPU) {
  if (!context.has_batch("positions")) return at::arange(seq, at::TensorOptions(at::kLong).device(device)).unsqueeze(0);
  at::Tensor positions = context.batch("positions");
  if (positions.scalar_type() != at::kLong || positions.sizes() != at::IntArrayRef{samples, seq}) {
    misuse("the batch's positions must be int64 [{}, {}], got {}; positions:to \"int64\" converts them", samples, seq,
           describe(positions));
  }
  return positions;
}

}  // namespace zt::nn
