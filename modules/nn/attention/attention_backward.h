// The backward of tiled attention; attention_tiled.cpp runs it.
#pragma once

#include <algorithm>
#include <vector>

#include "attention_call.h"

namespace zt::nn {

// Computes the backward of pairs (sample, key head), one at a time. The suffix _across marks transposed panels. G is the dtype of
// the gradients.
template <class T, class A, class G>
class AttentionBackward {
 public:
  struct Gradients {
    HeadRows<G> queries, keys, values;
    GradientSum sum;
  };
  AttentionBackward(const AttentionCall<T, A>& call, const Gradients& grads, const T* dout, const T* out, const A* logsumexp)
      : call_(call), grads_(grads), dout_(dout), out_(out), logsumexp_(logsumexp) {}

  // Computes pair number `pair`: all query heads of a sample that share one key head.
  void run(int64_t pair) {
    const auto& c = call_;
    const int64_t sample = pair / c.rule.shape.kv_heads, kv = pair % c.rule.shape.kv_heads;
    const int64_t first = c.needed.begin, count = c.needed.end - first, at = first * c.padded_dim;
    tile::load(c.isa, keys_ + at, c.keys.at(sample, first, kv), c.keys.row_stride, count, c.head_dim, A(1));
    tile::transpose(c.isa, keys_across_ + at, keys_ + at, count, c.head_dim);
    tile::load(c.isa, dvalues_ + at, c.values.at(sample, first, kv), c.values.row_stride, count, c.head_dim, A(1));
    tile::transpose(c.isa, values_across_ + at, dvalues_ + at, count, c.head_dim);
    begin(dkeys_, grads_.keys, sample, kv);
    begin(dvalues_, grads_.values, sample, kv);
    const Share heads = c.rule.shape.heads_of(kv);
    for (int64_t head = heads.begin; head < heads.end(); ++head) {
      for (int64_t i = 0; i < c.query_groups(); ++i) run_group(sample, head, c.query_group(sample, i));
    }
    end(dkeys_, grads_.keys, sample, kv);
    end(dvalues_, grads_.values, sample, kv);
  }

 private:
  // Sets the sum of a gradient of keys or values to 0, or to the earlier gradient.
  void begin(A* sum, const HeadRows<G>& grad, int64_t sample, int64_t kv) {
    const auto& c = call_;
    if (grads_.sum == GradientSum::write) return void(std::fill_n(sum, c.key_count * c.padded_dim, A(0)));
    tile::load(c.isa, sum, grad.at(sample, 0, kv), grad.row_stride, c.key_count, c.head_dim, A(1));
  }
  void end(const A* sum, const HeadRows<G>& grad, int64_t sample, int64_t kv) {
    const auto& c = call_;
    tile::store<A>(c.isa, grad.at(sample, 0, kv), grad.row_stride, sum, c.key_count, c.head_dim, nullptr, A(1));
  }

  // A tile of queries with the gradient of its result, and the sum of its own gradient over the keys so far.
  struct State {
    A dots[kQueries];
    A *queries, *queries_across, *dmixed, *dmixed_across, *dqueries;
  };

  void run_group(int64_t sample, int64_t head, const QueryGroup& group) {
    const auto& c = call_;
    for (size_t i = 0; i < group.size(); ++i) load_queries(states_[i], sample, head, group[i]);
    c.for_keys(group, [&](size_t i, TileRange queries, TileRange keys, bool is_first) {
      const A* logsumexp = logsumexp_ + c.row_at(sample, queries.begin, head);
      run_keys(states_[i], c.mask(sample, head, queries, keys, kept_.data()), queries.end - queries.begin, keys, logsumexp,
               is_first);
    });
    for (size_t i = 0; i < group.size(); ++i) store_queries(states_[i], sample, head, group[i].rows);
  }

  void load_queries(State& state, int64_t sample, int64_t head, const QueryTile& tile) {
    const auto& c = call_;
    const int64_t rows = tile.rows.end - tile.rows.begin, out_at = c.out_at(sample, tile.rows.begin, head);
    if (tile.sees_none()) return void(std::fill_n(state.dqueries, rows * c.padded_dim, A(0)));
    tile::load(c.isa, state.queries, c.queries.at(sample, tile.rows.begin, head), c.queries.row_stride, rows, c.head_dim,
               c.scale);
    tile::load(c.isa, mixed_, out_ + out_at, c.out_columns(), rows, c.head_dim, A(1));
    tile::load(c.isa, state.dmixed, dout_ + out_at, c.out_columns(), rows, c.head_dim, A(1));
    tile::transpose(c.isa, state.queries_across, state.queries, rows, c.head_dim);
    tile::transpose(c.isa, state.dmixed_across, state.dmixed, rows, c.head_dim);
    tile::row_dots<A>(c.isa, state.dots, mixed_, state.dmixed, rows, c.head_dim);
  }

  void store_queries(const State& state, int64_t sample, int64_t head, TileRange queries) {
    const auto& c = call_;
    const int64_t rows = queries.end - queries.begin;
    G* to = grads_.queries.at(sample, queries.begin, head);
    if (grads_.sum == GradientSum::write)
      return tile::store<A>(c.isa, to, grads_.queries.row_stride, state.dqueries, rows, c.head_dim, nullptr, c.scale);
    tile::load(c.isa, mixed_, to, grads_.queries.row_stride, rows, c.head_dim, A(1));
    for (int64_t i = 0; i < rows * c.padded_dim; ++i) mixed_[i] += state.dqueries[i] * c.scale;
    tile::store<A>(c.isa, to, grads_.queries.row_stride, mixed_, rows, c.head_dim, nullptr, A(1));
  }

  void run_keys(const State& state, const tile::AttentionMask& mask, int64_t rows, TileRange keys, const A* logsumexp,
                bool is_first) {
    const auto& c = call_;
    const int64_t count = keys.end - keys.begin, first = keys.begin * c.padded_dim;
    const auto scores = [&](A* to, const A* a, const A* b) {
      tile::multiply<A>(c.isa, {to, score_row_, a, 1, kPanel, b + first, kPanel, kPanel * c.padded_dim, rows, padded(count),
                                c.head_dim, false});
    };
    const auto add_over_queries = [&](A* to, const A* a, const A* b) {
      tile::multiply<A>(c.isa,
                        {to + first, c.padded_dim, a, 1, score_row_, b, c.padded_dim, kPanel, count, c.padded_dim, rows, true});
    };
    scores(weights_, state.queries_across, keys_across_);
    scores(dscores_, state.dmixed_across, values_across_);
    tile::softmax_backward(c.isa, weights_, dscores_, score_row_, rows, mask, logsumexp, state.dots);
    tile::multiply<A>(c.isa, {state.dqueries, c.padded_dim, dscores_, score_row_, 1, keys_ + first, c.padded_dim, kPanel, rows,
                              c.padded_dim, count, !is_first});
    add_over_queries(dkeys_, dscores_, state.queries);
    add_over_queries(dvalues_, weights_, state.dmixed);
  }

  const AttentionCall<T, A>& call_;
  Gradients grads_;
  const T *dout_, *out_;
  const A* logsumexp_;
  int64_t score_row_ = padded(std::min(call_.key_count, kKeys)) + tile::kChunk;
  Scratch<A> scratch_{call_.device};
  A* keys_ = scratch_.take(call_.key_count * call_.padded_dim);
  A* keys_across_ = scratch_.take(padded(call_.key_count, kPanel) * call_.padded_dim);
  A* values_across_ = scratch_.take(padded(call_.key_count, kPanel) * call_.padded_dim);
  A* dkeys_ = scratch_.take(call_.key_count * call_.padded_dim);
  A* dvalues_ = scratch_.take(call_.key_count * call_.padded_dim);
  A* mixed_ = scratch_.take(kQueries * call_.padded_dim);
  A* weights_ = scratch_.take(kQueries * score_row_);
  A* dscores_ = scratch_.take(kQueries * score_row_);
  std::vector<State> states_ = states_of(
      call_, scratch_, {&State::queries, &State::queries_across, &State::dmixed, &State::dmixed_across, &State::dqueries});
  std::vector<uint8_t> kept_ = std::vector<uint8_t>(call_.rule.dropout ? kQueries * kKeys : 0);
};

}  // namespace zt::nn
