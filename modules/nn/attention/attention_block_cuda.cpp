#include <cmath>
#include <limits>

#include "attention_cuda.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

// The heads of a block in the wide dtype, those of keys and values once per query head, and its scores.
struct WideBlock {
  const AttentionTokens& tokens;
  const AttentionRule& rule;
  double scale;
  at::Tensor queries, keys, values;  // [B, H, S or T, D]
  at::Tensor scores;                 // [B, H, S, T]; hidden ones are -inf

  WideBlock(const AttentionViews& in, const AttentionTokens& of, const AttentionRule& by)
      : tokens(of), rule(by), scale(1 / std::sqrt(static_cast<double>(by.shape.head_dim))) {
    queries = heads_of(in.queries);
    keys = by_query_head(heads_of(in.keys), rule.shape);
    values = by_query_head(heads_of(in.values), rule.shape);
    at::Tensor seen = rule.sees.mask(tokens.queries, tokens.keys, in.queries.device()).unsqueeze(0).unsqueeze(0);
    if (tokens.query_segments.defined()) {
      const at::Tensor of_queries = tokens.query_segments.to(in.queries.device()),
                       of_keys = tokens.key_segments.to(in.queries.device());
      seen = seen.logical_and((of_queries.unsqueeze(2) == of_keys.unsqueeze(1)).unsqueeze(1));
    }
    const at::Tensor all = queries.matmul(keys.transpose(2, 3)) * scale;
    scores = all.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  }

  at::Tensor heads_of(const at::Tensor& view) const {
    return view.unflatten(2, {-1, rule.shape.head_dim}).transpose(1, 2).to(wide_dtype(view.scalar_type()));
  }
  static at::Tensor to_rows(const at::Tensor& heads) { return heads.transpose(1, 2).flatten(2); }
  // Returns exp(scores - logsumexp), 0 for rows that see no key.
  at::Tensor weights(const at::Tensor& logsumexp) const {
    const double hidden = -std::numeric_limits<double>::infinity();
    return (scores - logsumexp.masked_fill(logsumexp == hidden, 0).unsqueeze(3)).exp();
  }
  at::Tensor dropped(const at::Tensor& weights) const {
    if (!rule.dropout) return weights;
    return weights * rule.dropout->mask(weights.sizes(), weights.device(), mask_parts()) * rule.dropout->scale();
  }

 private:
  // Which elements of the whole weights [H of all ranks, total, total] of a sample the block has.
  std::vector<SampleLines> mask_parts() const {
    std::vector<SampleLines> parts;
    const int64_t total = tokens.total, width = tokens.keys.rows();
    for (int64_t head = 0, place = 0; head < rule.shape.heads; ++head) {
      for (const Share& of_queries : tokens.queries.ranges()) {
        int64_t column = 0;
        for (const Share& of_keys : tokens.keys.ranges()) {
          const int64_t first = ((rule.first_head + head) * total + of_queries.begin) * total + of_keys.begin;
          parts.push_back({first, of_queries.count, total, of_keys.count, place + column, width});
          column += of_keys.count;
        }
        place += of_queries.count * width;
      }
    }
    return parts;
  }
};

}  // namespace

void block_forward_by_aten(const at::Tensor& out, const at::Tensor& logsumexp, const AttentionViews& in,
                           const AttentionTokens& tokens, const AttentionRule& rule) {
  const WideBlock block(in, tokens, rule);
  logsumexp.copy_(block.scores.logsumexp(-1));
  out.copy_(WideBlock::to_rows(block.dropped(block.weights(logsumexp)).matmul(block.values)));
}

void block_backward_by_aten(const AttentionViews& grads, GradientSum sum, const at::Tensor& dout, const AttentionViews& in,
                            const at::Tensor& out, const at::Tensor& logsumexp, const AttentionTokens& tokens,
                            const AttentionRule& rule) {
  const WideBlock block(in, tokens, rule);
  const at::Tensor weights = block.weights(logsumexp), grad = block.heads_of(dout);
  const at::Tensor dots = (grad * block.heads_of(out)).sum(-1, /*keepdim=*/true);
  const at::Tensor dscores = weights * (block.dropped(grad.matmul(block.values.transpose(2, 3))) - dots) * block.scale;
  const auto give = [&](const at::Tensor& to, const at::Tensor& heads) {
    const at::Tensor rows = WideBlock::to_rows(heads);
    sum == GradientSum::write ? to.copy_(rows) : to.add_(rows);
  };
  give(grads.queries, dscores.matmul(block.keys));
  give(grads.keys, by_key_head(dscores.transpose(2, 3).matmul(block.queries), rule.shape));
  give(grads.values, by_key_head(block.dropped(weights).transpose(2, 3).matmul(grad), rule.shape));
}

}  // namespace zt::nn
