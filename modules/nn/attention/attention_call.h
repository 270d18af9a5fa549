// Helpers of attention_forward.h and attention_backward.h: addresses of heads, masks, and the division into tiles.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "attention_tiled.h"
#include "cpu/tile.h"

namespace zt::nn {

using tile::kPanel;
using tile::padded;

constexpr int64_t kQueries = kPanel;  // rows per tile of scores; more rows would compute more scores that a causal mask discards
constexpr int64_t kKeys = 512;        // columns per tile of scores; a tile has 64 KiB of float32
constexpr int64_t kGroup = 8;         // tiles of queries that read a tile of keys and values while it is in the cache

// The queries of a tile of scores, and the keys that they see: a range that begins at the start of a panel.
struct QueryTile {
  TileRange rows, visible;

  bool sees_none() const { return visible.begin == visible.end; }
};
using QueryGroup = c10::SmallVector<QueryTile, kGroup>;

// The heads of a view [B, rows, heads D].
template <class T>
struct HeadRows {
  T* data;  // null on device meta
  int64_t sample_stride, row_stride, head_dim;

  HeadRows(const at::Tensor& view, int64_t dim)
      : data(static_cast<T*>(const_cast<void*>(view.const_data_ptr()))),  // NOLINT: of a result, or T is const
        sample_stride(view.stride(0)),
        row_stride(view.stride(1)),
        head_dim(dim) {}
  T* at(int64_t sample, int64_t row, int64_t head) const {
    return data + sample * sample_stride + row * row_stride + head * head_dim;
  }
};

// The tensors and sizes of one call. T is the dtype of the tensors, A the dtype of sums.
template <class T, class A>
struct AttentionCall {
  const AttentionRule& rule;
  const AttentionTokens& tokens;
  Isa isa;
  HeadRows<const T> queries, keys, values;
  at::Device device;
  int64_t samples, query_count, key_count;
  int64_t head_dim, padded_dim;
  A scale;
  TileRange needed;  // the keys that a query sees by its place, from the start of a panel

  AttentionCall(const AttentionViews& in, const AttentionTokens& given, const AttentionRule& of, Isa chosen)
      : rule(of),
        tokens(given),
        isa(chosen),
        queries(in.queries, of.shape.head_dim),
        keys(in.keys, of.shape.head_dim),
        values(in.values, of.shape.head_dim),
        device(in.queries.device()),
        samples(in.queries.size(0)),
        query_count(in.queries.size(1)),
        key_count(in.keys.size(1)),
        head_dim(of.shape.head_dim),
        padded_dim(padded(head_dim)),
        scale(static_cast<A>(1 / std::sqrt(static_cast<double>(head_dim)))),
        needed(from_panel(seen_by({0, query_count}))) {}

  int64_t out_columns() const { return rule.shape.heads * head_dim; }
  // Return the offset in elements of a head in the result, and of a row in logsumexp.
  int64_t out_at(int64_t sample, int64_t row, int64_t head) const {
    return (sample * query_count + row) * out_columns() + head * head_dim;
  }
  int64_t row_at(int64_t sample, int64_t row, int64_t head) const {
    return (sample * rule.shape.heads + head) * query_count + row;
  }

  static const int64_t* segments(const at::Tensor& of, int64_t sample) {
    return of.defined() ? of.const_data_ptr<int64_t>() + sample * of.size(1) : nullptr;
  }
  static TileRange from_panel(TileRange range) { return {range.begin - range.begin % kPanel, range.end}; }
  // Returns the keys that queries see by their places.
  TileRange seen_by(TileRange rows) const {
    return rule.sees.keys_of(tokens.queries.place(rows.begin), tokens.queries.place(rows.end - 1), tokens.keys, tokens.total);
  }
  // Returns a range of keys that contains all keys visible to the queries of a tile. It begins at the start of a panel.
  TileRange visible(int64_t sample, TileRange rows) const {
    TileRange seen = seen_by(rows);
    if (const int64_t* segment = segments(tokens.query_segments, sample)) {
      const auto [least, most] = std::minmax_element(segment + rows.begin, segment + rows.end);
      const int64_t* of_keys = segments(tokens.key_segments, sample);
      const auto apart = [&](int64_t j) { return of_keys[j] < *least || of_keys[j] > *most; };
      while (seen.begin < seen.end && apart(seen.begin)) ++seen.begin;
      while (seen.begin < seen.end && apart(seen.end - 1)) --seen.end;
    }
    return seen.begin < seen.end ? from_panel(seen) : TileRange{0, 0};
  }
  // Returns the mask of a tile. kept: a buffer of kQueries * kKeys bytes, which is filled if there is dropout.
  tile::AttentionMask mask(int64_t sample, int64_t head, TileRange rows, TileRange columns, uint8_t* kept) const {
    const int64_t count = columns.end - columns.begin;
    const int64_t *of_rows = segments(tokens.query_segments, sample), *of_keys = segments(tokens.key_segments, sample);
    tile::AttentionMask mask{.keys = count,
                             .first = {},
                             .end = {},
                             .query_segments = of_rows ? of_rows + rows.begin : nullptr,
                             .key_segments = of_keys ? of_keys + columns.begin : nullptr,
                             .keep = rule.dropout ? kept : nullptr,
                             .keep_row = kKeys,
                             .keep_scale = rule.dropout ? rule.dropout->scale() : 1};
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      const int64_t query = tokens.queries.place(i);
      const TileRange seen = rule.sees.keys_of(query, query, tokens.keys, tokens.total);
      const int64_t end = std::clamp<int64_t>(seen.end - columns.begin, 0, count);
      mask.first[i - rows.begin] = std::max<int64_t>(seen.begin - columns.begin, 0);
      mask.end[i - rows.begin] = end;
      if (rule.dropout) fill_kept(sample, head, query, {columns.begin, columns.begin + end}, kept + (i - rows.begin) * kKeys);
    }
    return mask;
  }
  // Fills `kept` for the weights of a query and of some keys, of which those of each range of places have consecutive numbers.
  void fill_kept(int64_t sample, int64_t head, int64_t query, TileRange columns, uint8_t* kept) const {
    const int64_t row = ((rule.first_head + head) * tokens.total + query) * tokens.total;
    int64_t first = 0;  // the first row of a range
    for (const Share& range : tokens.keys.ranges()) {
      const int64_t begin = std::max(columns.begin, first), end = std::min(columns.end, first + range.count);
      if (begin < end) rule.dropout->fill(kept + begin - columns.begin, sample, row + range.begin + begin - first, end - begin);
      first += range.count;
    }
  }
  int64_t query_tiles() const { return (query_count + kQueries - 1) / kQueries; }
  int64_t query_groups() const { return (query_tiles() + kGroup - 1) / kGroup; }
  QueryGroup query_group(int64_t sample, int64_t index) const {
    QueryGroup group;
    for (int64_t i = index * kGroup; i < std::min((index + 1) * kGroup, query_tiles()); ++i) {
      const TileRange rows{i * kQueries, std::min((i + 1) * kQueries, query_count)};
      group.push_back({rows, visible(sample, rows)});
    }
    return group;
  }
  // Calls body(number of the tile in the group, its queries, keys, whether they are its first) for all tiles of keys that each
  // tile of queries sees, in ascending order. Tiles of the group that see the same keys follow each other.
  template <class Body>
  static void for_keys(const QueryGroup& group, const Body& body) {
    int64_t most = 0;
    for (const QueryTile& tile : group) most = std::max(most, tile.visible.end - tile.visible.begin);
    for (int64_t first = 0; first < most; first += kKeys) {
      for (size_t i = 0; i < group.size(); ++i) {
        const auto& [rows, visible] = group[i];
        const int64_t begin = visible.begin + first;
        if (begin < visible.end) body(i, rows, TileRange{begin, std::min(begin + kKeys, visible.end)}, first == 0);
      }
    }
  }
};

// Allocates the buffers of one task and owns them.
template <class A>
class Scratch {
 public:
  explicit Scratch(at::Device device) : device_(device) {}
  A* take(int64_t elements) {
    held_.push_back(at::empty({elements}, at::TensorOptions().dtype(c10::CppTypeToScalarType<A>::value).device(device_)));
    return static_cast<A*>(held_.back().mutable_data_ptr());
  }

 private:
  at::Device device_;
  std::vector<at::Tensor> held_;
};

// Returns a state for each tile of a group of queries. Each of its `parts` gets room for a tile of queries.
template <class T, class A, class State>
std::vector<State> states_of(const AttentionCall<T, A>& call, Scratch<A>& scratch, std::initializer_list<A * State::*> parts) {
  std::vector<State> states(std::min(call.query_tiles(), kGroup));
  for (State& state : states) {
    for (A* State::*part : parts) state.*part = scratch.take(kQueries * call.padded_dim);
  }
  return states;
}

}  // namespace zt::nn
