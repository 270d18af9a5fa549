// The batch fields that say where tokens are: their positions in their documents, and their segments.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/model/layer.h"

namespace zt::nn {

// Throws Misuse unless the batch field `name` is int64 of this shape.
inline void check_token_field(const std::string& name, const at::Tensor& field, at::IntArrayRef shape) {
  if (field.scalar_type() != at::kLong || field.sizes() != shape)
    misuse("the batch's {0} must be int64 [{1}], got {2}; {0}:to \"int64\" converts them", name, fmt::join(shape, ", "),
           describe(field));
}

// Returns a batch field [samples, seq] int64. Throws Misuse if it has another dtype or shape.
inline at::Tensor token_field(const std::string& name, Context& context, int64_t samples, int64_t seq) {
  at::Tensor field = context.batch(name);
  check_token_field(name, field, {samples, seq});
  return field;
}

// Throws Misuse unless the batch's `name`, if it has this field, is int64 of the shape of its tokens. For
// LayerExtras::check_batch.
inline void check_beside_tokens(const std::string& name, const BatchField& batch) {
  const at::Tensor field = batch(name), tokens = batch("tokens");
  if (field.defined() && tokens.defined()) check_token_field(name, field, tokens.sizes());
}

// Returns the batch's "positions" [samples, seq] int64, or 0 .. seq - 1 as [1, seq] int64 on `device` if it has none. Throws
// Misuse if the batch's positions have another dtype or shape.
inline at::Tensor positions_of(Context& context, int64_t samples, int64_t seq, at::Device device = at::kCPU) {
  if (!context.has_batch("positions")) return at::arange(seq, at::TensorOptions(at::kLong).device(device)).unsqueeze(0);
  return token_field("positions", context, samples, seq);
}

}  // namespace zt::nn
