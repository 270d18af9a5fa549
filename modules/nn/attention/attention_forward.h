// The forward of tiled attention; attention_tiled.cpp runs it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention_call.h"

namespace zt::nn {

// Computes groups of queries of the forward, one at a time. O is the dtype of the result.
template <class T, class A, class O>
class AttentionForward {
 public:
  AttentionForward(const AttentionCall<T, A>& call, O* out, A* logsumexp) : call_(call), out_(out), logsumexp_(logsumexp) {}

  // Computes group number `index` of all. Groups that share a key head have consecutive numbers.
  void run(int64_t index) {
    const auto& c = call_;
    const int64_t groups = c.query_groups(), row = index / groups;  // row: number of the pair (sample, head)
    const int64_t sample = row / c.rule.shape.heads, head = row % c.rule.shape.heads;
    load_keys(sample, c.rule.shape.kv_of(head));
    run_group(sample, head, c.query_group(sample, from_both_ends(index % groups, groups)));
  }

 private:
  // Maps 0, 1, 2, 3, ... to 0, n - 1, 1, n - 2, ... With a causal mask, later groups cost more. In this order, the threads'
  // shares of the groups cost about the same.
  static int64_t from_both_ends(int64_t i, int64_t n) { return i % 2 == 0 ? i / 2 : n - 1 - i / 2; }

  void load_keys(int64_t sample, int64_t kv) {
    const auto& c = call_;
    const int64_t pair = sample * c.rule.shape.kv_heads + kv;
    if (pair == loaded_) return;
    loaded_ = pair;
    const int64_t first = c.needed.begin, count = c.needed.end - first;
    A *keys = keys_ + first * c.padded_dim, *values = values_ + first * c.padded_dim;
    tile::load(c.isa, values, c.keys.at(sample, first, kv), c.keys.row_stride, count, c.head_dim, A(1));
    tile::transpose(c.isa, keys, values, count, c.head_dim);
    tile::load(c.isa, values, c.values.at(sample, first, kv), c.values.row_stride, count, c.head_dim, A(1));
  }

  // A tile of queries, and its sums over the keys so far.
  struct State {
    A largest[kQueries], sum[kQueries];
    A *queries, *mixed;
  };

  void run_group(int64_t sample, int64_t head, const QueryGroup& group) {
    const auto& c = call_;
    for (size_t i = 0; i < group.size(); ++i) begin(states_[i], sample, head, group[i]);
    c.for_keys(group, [&](size_t i, TileRange queries, TileRange keys, bool is_first) {
      State& state = states_[i];
      const int64_t rows = queries.end - queries.begin, count = keys.end - keys.begin;
      tile::multiply<A>(c.isa, {scores_, score_row_, state.queries, 1, kPanel, keys_ + keys.begin * c.padded_dim, kPanel,
                                kPanel * c.padded_dim, rows, padded(count), c.head_dim, false});
      tile::softmax<A>(c.isa, scores_, score_row_, rows, c.mask(sample, head, queries, keys, kept_.data()),
                       {state.largest, state.sum, is_first ? nullptr : state.mixed, c.padded_dim});
      tile::multiply<A>(c.isa, {state.mixed, c.padded_dim, scores_, score_row_, 1, values_ + keys.begin * c.padded_dim,
                                c.padded_dim, kPanel, rows, c.padded_dim, count, !is_first});
    });
    for (size_t i = 0; i < group.size(); ++i) store(sample, head, group[i].rows, states_[i]);
  }

  void begin(State& state, int64_t sample, int64_t head, const QueryTile& tile) {
    const auto& c = call_;
    const int64_t rows = tile.rows.end - tile.rows.begin;
    std::fill_n(state.largest, kQueries, -std::numeric_limits<A>::infinity());
    std::fill_n(state.sum, kQueries, A(0));
    if (tile.sees_none()) return void(std::fill_n(state.mixed, rows * c.padded_dim, A(0)));
    tile::load(c.isa, state.mixed, c.queries.at(sample, tile.rows.begin, head), c.queries.row_stride, rows, c.head_dim, c.scale);
    tile::transpose(c.isa, state.queries, state.mixed, rows, c.head_dim);
  }

  // Stores the result of a tile from the sums over all keys. A row that sees no key has the sum 0, and the weighted sum 0.
  void store(int64_t sample, int64_t head, TileRange queries, const State& state) {
    const auto& c = call_;
    const int64_t rows = queries.end - queries.begin;
    A reciprocal[kQueries];
    A* logsumexp = logsumexp_ + c.row_at(sample, queries.begin, head);
    for (int64_t i = 0; i < rows; ++i) {
      logsumexp[i] = state.largest[i] + std::log(state.sum[i]);
      reciprocal[i] = state.sum[i] == 0 ? A(0) : 1 / state.sum[i];
    }
    O* out = out_ + c.out_at(sample, queries.begin, head);
    tile::store(c.isa, out, c.out_columns(), state.mixed, rows, c.head_dim, reciprocal, A(1));
  }

  const AttentionCall<T, A>& call_;
  O* out_;
  A* logsumexp_;
  int64_t score_row_ = padded(std::min(call_.key_count, kKeys)) + tile::kChunk;
  Scratch<A> scratch_{call_.device};
  A* keys_ = scratch_.take(padded(call_.key_count, kPanel) * call_.padded_dim);
  A* values_ = scratch_.take(call_.key_count * call_.padded_dim);
  A* scores_ = scratch_.take(kQueries * score_row_);
  std::vector<State> states_ = states_of(call_, scratch_, {&State::queries, &State::mixed});
  std::vector<uint8_t> kept_ = std::vector<uint8_t>(call_.rule.dropout ? kQueries * kKeys : 0);
  int64_t loaded_ = -1;  // number of the pair (sample, key head) whose keys and values are loaded
};

}  // namespace zt::nn
