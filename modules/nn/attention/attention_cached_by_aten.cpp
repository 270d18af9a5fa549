#include "attention_cached.h"
#include "attention_cuda.h"
#include "zt/base/tensor.h"

namespace zt::nn {

namespace {

// Writes rows [rows, K, D] to places of blocks [blocks, K, tokens, D], which may be a view, and their scales, if there are any.
void write_by_aten(const at::Tensor& to, const at::Tensor& scales, const at::Tensor& blocks, const at::Tensor& slots,
                   const at::Tensor& rows) {
  const auto put = [&](const at::Tensor& at, const at::Tensor& values) {
    at.transpose(1, 2).index_put_({blocks, slots}, values);
  };
  if (!scales.defined()) return put(to, rows);
  const at::Tensor scale = rows.to(at::kFloat).abs().amax(-1).div(127).to(at::kHalf), by = scale.to(at::kFloat).unsqueeze(-1);
  put(scales, scale);
  put(to, at::where(by > 0, (rows.to(at::kFloat) / by).round().clamp(-127, 127), 0).to(at::kChar));
}

// Returns the tokens of a sequence [1, count, K D] from blocks [blocks, K, tokens, D].
at::Tensor read_by_aten(const at::Tensor& from, const at::Tensor& scales, const at::Tensor& blocks, int64_t count,
                        at::ScalarType dtype) {
  const auto rows = [&](const at::Tensor& of) {
    return of.index_select(0, blocks).transpose(1, 2).flatten(0, 1).narrow(0, 0, count);
  };
  const at::Tensor values = scales.defined() ? rows(from).to(at::kFloat) * rows(scales).to(at::kFloat).unsqueeze(-1) : rows(from);
  return values.to(dtype).flatten(1).unsqueeze(0);
}

}  // namespace

at::Tensor attention_cached_by_aten(const at::Tensor& qkv, const AttentionRule& rule, const CachedRows& rows) {
  const AttentionShape& shape = rule.shape;
  const AttentionViews views = views_of(qkv, shape);
  const at::Tensor out = at::empty_like(views.queries, at::MemoryFormat::Contiguous);
  const KvLayer& layer = rows.layer;
  const at::Tensor transposed_keys = layer.keys.transpose(2, 3);
  const auto numbers = at::TensorOptions(at::kLong).device(qkv.device());
  for (const KvSequence& sequence : rows.sequences) {
    const int64_t total = sequence.past + sequence.rows;
    const at::Tensor blocks =
        at::tensor(std::vector<int64_t>(sequence.blocks.begin(), sequence.blocks.end()), at::kLong).to(qkv.device());
    const at::Tensor places = at::arange(sequence.past, total, numbers);
    const at::Tensor used = blocks.index_select(0, places.div(rows.block, "floor")), slots = places.remainder(rows.block);
    const auto new_rows = [&](const at::Tensor& of) {
      return of[0].narrow(0, sequence.first_row, sequence.rows).unflatten(1, {-1, shape.head_dim});
    };
    write_by_aten(transposed_keys, layer.key_scales, used, slots, new_rows(views.keys));
    write_by_aten(layer.values, layer.value_scales, used, slots, new_rows(views.values));
    const AttentionTokens tokens{PlaceRanges({{sequence.past, sequence.rows}}), PlaceRanges::whole(total), total, {}, {}};
    const at::Tensor logsumexp = at::empty({1, shape.heads, sequence.rows}, qkv.options().dtype(wide_dtype(qkv.scalar_type())));
    block_forward_by_aten(out.narrow(1, sequence.first_row, sequence.rows), logsumexp,
                          {views.queries.narrow(1, sequence.first_row, sequence.rows),
                           read_by_aten(transposed_keys, layer.key_scales, blocks, total, qkv.scalar_type()),
                           read_by_aten(layer.values, layer.value_scales, blocks, total, qkv.scalar_type())},
                          tokens, rule);
  }
  return out;
}

}  // namespace zt::nn
