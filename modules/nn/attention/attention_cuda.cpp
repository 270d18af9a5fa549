#include "attention_cuda.h"

#include <cmath>
#include <limits>

namespace zt::nn {

namespace {

// Returns the visibility of keys [B or 1, 1, T, T] as bools: element (i, j) is true if query i sees key j, of its own segment.
at::Tensor visibility_mask(const AttentionInputs& inputs, int64_t places, at::Device device) {
  const at::Tensor seen =
      inputs.sees.mask(PlaceRanges::whole(places), PlaceRanges::whole(places), device).view({1, 1, places, places});
  if (!inputs.segments.defined()) return seen;
  const at::Tensor segments = inputs.segments.to(device, at::kLong, /*non_blocking=*/true);
  return seen.logical_and(segments.unsqueeze(1).unsqueeze(3) == segments.unsqueeze(1).unsqueeze(2));
}

// Returns attention with dropout of the weights. Holds the whole weights, to apply our dropout mask to them.
at::Tensor with_dropout(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionInputs& inputs) {
  const double scale = 1 / std::sqrt(static_cast<double>(inputs.shape.head_dim));
  const at::Tensor scores = q.matmul(by_query_head(k, inputs.shape).transpose(2, 3)) * scale;
  const at::Tensor hidden = visibility_mask(inputs, q.size(2), q.device()).logical_not();
  const at::Tensor weights = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()).softmax(-1);
  const at::Tensor kept = inputs.dropout->mask(weights.sizes(), q.device(), inputs.first_head * q.size(2) * q.size(2));
  return (weights * kept * inputs.dropout->scale()).matmul(by_query_head(v, inputs.shape));
}

}  // namespace

at::Tensor by_query_head(const at::Tensor& x, const AttentionShape& shape) {
  if (shape.heads == shape.kv_heads) return x;
  std::vector<at::Tensor> heads;
  for (int64_t kv = 0; kv < shape.kv_heads; ++kv)
    heads.push_back(x.narrow(1, kv, 1).expand({-1, shape.heads_of(kv).count, -1, -1}));
  return at::cat(heads, 1);
}

at::Tensor by_key_head(const at::Tensor& x, const AttentionShape& shape) {
  if (shape.heads == shape.kv_heads) return x;
  std::vector<at::Tensor> sums;
  for (int64_t kv = 0; kv < shape.kv_heads; ++kv) {
    const Share owned = shape.heads_of(kv);
    sums.push_back(x.narrow(1, owned.begin, owned.count).sum(1));
  }
  return at::stack(sums, 1);
}

at::Tensor attention_by_aten(const at::Tensor& qkv, const AttentionInputs& inputs) {
  const AttentionShape& shape = inputs.shape;
  const int64_t samples = qkv.size(0), places = qkv.size(1);
  const at::Tensor turned = inputs.angles ? rotate_joined(qkv, inputs) : qkv;
  const auto parts = turned.view({samples, places, -1, shape.head_dim})
                         .transpose(1, 2)
                         .split_with_sizes({shape.heads, shape.kv_heads, shape.kv_heads}, 1);
  const auto by_kernel = [&](const std::optional<at::Tensor>& mask, bool causal) {
    const bool is_even = shape.is_even();
    const at::Tensor keys = is_even ? parts[1] : by_query_head(parts[1], shape),
                     values = is_even ? parts[2] : by_query_head(parts[2], shape);
    return at::scaled_dot_product_attention(parts[0], keys, values, mask, 0, causal, std::nullopt,
                                            is_even && shape.heads != shape.kv_heads);
  };
  const bool needs_mask = inputs.segments.defined() || inputs.sees.window > 0;
  const at::Tensor out = inputs.dropout ? with_dropout(parts[0], parts[1], parts[2], inputs)
                         : needs_mask   ? by_kernel(visibility_mask(inputs, places, qkv.device()), false)
                                        : by_kernel(std::nullopt, inputs.sees.causal);
  return out.transpose(1, 2).reshape({samples, places, shape.heads * shape.head_dim});
}

}  // namespace zt::nn
