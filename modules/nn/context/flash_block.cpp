#include "flash_block.h"

#include <ATen/ATen.h>

#include <limits>

#include "attention/attention_cuda.h"
#include "block_merge.h"
#include "cuda/device_info.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

// Some rows of a view as heads [B, heads, rows, D].
at::Tensor heads_of_rows(const at::Tensor& view, Share rows, int64_t head_dim) {
  return view.narrow(1, rows.begin, rows.count).unflatten(2, {-1, head_dim}).transpose(1, 2);
}

at::Tensor rows_of_heads(const at::Tensor& heads) {
  return heads.transpose(1, 2).flatten(2);
}

// The tensors of one part, with keys and values once per query head.
struct PartHeads {
  at::Tensor queries, keys, values;

  PartHeads(const AttentionViews& in, const FlashPart& part, const AttentionShape& shape)
      : queries(heads_of_rows(in.queries, part.queries, shape.head_dim)),
        keys(by_query_head(heads_of_rows(in.keys, part.keys, shape.head_dim), shape)),
        values(by_query_head(heads_of_rows(in.values, part.keys, shape.head_dim), shape)) {}
};

// Returns whether the GPU can run ATen's flash attention, which needs compute capability 8.0.
bool has_flash_attention([[maybe_unused]] at::Device gpu) {
#ifdef ZT_HAS_CUDA
  return device::compute_capability(gpu.index()) >= 8;
#else
  return false;
#endif
}

std::pair<at::Tensor, at::Tensor> kernel_forward(const PartHeads& heads, bool is_causal) {
  if (!heads.queries.is_cuda()) {
    const auto [out, logsumexp] =
        at::_scaled_dot_product_flash_attention_for_cpu(heads.queries, heads.keys, heads.values, 0, is_causal);
    return {out, logsumexp};
  }
  const auto results = at::_scaled_dot_product_flash_attention(heads.queries, heads.keys, heads.values, 0, is_causal);
  return {std::get<0>(results), std::get<1>(results)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> kernel_backward(const PartHeads& heads, const at::Tensor& dout,
                                                               const at::Tensor& out, const at::Tensor& logsumexp,
                                                               bool is_causal) {
  if (!heads.queries.is_cuda())
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(dout, heads.queries, heads.keys, heads.values, out, logsumexp,
                                                                    0, is_causal);
  const at::Tensor none, unused = at::zeros({2}, dout.options().dtype(at::kLong));  // the state of random numbers
  return at::_scaled_dot_product_flash_attention_backward(dout, heads.queries, heads.keys, heads.values, out, logsumexp, none,
                                                          none, heads.queries.size(2), heads.keys.size(2), 0, is_causal, unused,
                                                          unused);
}

}  // namespace

std::optional<std::vector<FlashPart>> flash_parts(const AttentionTokens& tokens, const Visibility& sees) {
  std::vector<FlashPart> parts;
  int64_t query_row = 0;
  for (const Share& queries : tokens.queries.ranges()) {
    const Share query_rows{query_row, queries.count};
    query_row += queries.count;
    int64_t key_row = 0;
    for (const Share& keys : tokens.keys.ranges()) {
      const int64_t earlier = sees.causal ? std::clamp<int64_t>(queries.begin - keys.begin, 0, keys.count) : keys.count;
      if (earlier > 0) parts.push_back({query_rows, {key_row, earlier}, false});
      const int64_t same = sees.causal ? std::min(keys.end(), queries.end()) - std::max(keys.begin, queries.begin) : 0;
      if (same > 0 && same < queries.count) return {};
      if (same > 0) parts.push_back({query_rows, {key_row + earlier, same}, true});
      key_row += keys.count;
    }
  }
  return parts;
}

std::optional<std::vector<FlashPart>> flash_parts_of(const AttentionViews& in, const AttentionTokens& tokens,
                                                     const AttentionRule& rule) {
  const auto dtype = in.queries.scalar_type();
  const int64_t dim = rule.shape.head_dim;
  const bool has_kernel = (dtype == at::kHalf || dtype == at::kBFloat16) && dim % 8 == 0 && dim <= 256;
  if ((in.queries.is_cuda() && !(has_kernel && has_flash_attention(in.queries.device()))) || rule.dropout ||
      rule.sees.window > 0 || tokens.query_segments.defined())
    return {};
  return flash_parts(tokens, rule.sees);
}

void flash_block_forward(const at::Tensor& out, const at::Tensor& logsumexp, const AttentionViews& in,
                         const std::vector<FlashPart>& parts, const AttentionRule& rule) {
  out.zero_();
  logsumexp.fill_(-std::numeric_limits<double>::infinity());
  const at::ScalarType wide = logsumexp.scalar_type();
  for (const FlashPart& part : parts) {
    const auto [heads, sums] = kernel_forward(PartHeads(in, part, rule.shape), part.is_causal);
    const at::Tensor to = out.narrow(1, part.queries.begin, part.queries.count),
                     to_sums = logsumexp.narrow(2, part.queries.begin, part.queries.count);
    const BlockResult joined{to.to(wide).contiguous(), to_sums.contiguous()};
    merge_block(joined, {rows_of_heads(heads).to(wide).contiguous(), sums.to(wide).contiguous()});
    to.copy_(joined.out);
    to_sums.copy_(joined.logsumexp);
  }
}

void flash_block_backward(const AttentionViews& grads, GradientSum sum, const at::Tensor& dout, const AttentionViews& in,
                          const at::Tensor& out, const at::Tensor& logsumexp, const std::vector<FlashPart>& parts,
                          const AttentionRule& rule) {
  if (sum == GradientSum::write)
    for (const at::Tensor& grad : {grads.queries, grads.keys, grads.values}) grad.zero_();
  for (const FlashPart& part : parts) {
    const auto of_queries = [&](const at::Tensor& rows) {
      return heads_of_rows(rows, part.queries, rule.shape.head_dim).to(in.queries.scalar_type());
    };
    const at::Tensor sums = logsumexp.narrow(2, part.queries.begin, part.queries.count).contiguous();
    const auto [queries, keys, values] =
        kernel_backward(PartHeads(in, part, rule.shape), of_queries(dout), of_queries(out), sums, part.is_causal);
    const auto add = [](const at::Tensor& to, Share rows, const at::Tensor& heads) {
      to.narrow(1, rows.begin, rows.count).add_(rows_of_heads(heads));
    };
    add(grads.queries, part.queries, queries);
    add(grads.keys, part.keys, by_key_head(keys.to(sums.scalar_type()), rule.shape));
    add(grads.values, part.keys, by_key_head(values.to(sums.scalar_type()), rule.shape));
  }
}

}  // namespace zt::nn
