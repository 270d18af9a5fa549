// Helpers of forward and backward in attention_tiled.cpp: offsets of heads, masks, and the division into tiles.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attention_core.h"
#include "cpu/tile.h"

namespace zt::nn {

using tile::kPanel;
using tile::padded;

constexpr int64_t kQueries = kPanel;  // rows per tile of scores; more rows would compute more scores that a causal mask discards
constexpr int64_t kKeys = 512;        // columns per tile of scores; a tile has 64 KiB of float32

// The tensors and sizes of one call. T is the dtype of the tensors, A the dtype of sums.
template <class T, class A>
struct AttentionCall {
  AttentionInputs inputs;
  Isa isa;
  const T* qkv;  // null on device meta
  at::Device device;
  int64_t samples, places;
  int64_t head_dim, padded_dim;
  A scale;

  AttentionCall(const at::Tensor& joined, const AttentionInputs& given, Isa chosen)
      : inputs(given),
        isa(chosen),
        qkv(static_cast<const T*>(joined.const_data_ptr())),
        device(joined.device()),
        samples(joined.size(0)),
        places(joined.size(1)),
        head_dim(given.shape.head_dim),
        padded_dim(padded(head_dim)),
        scale(static_cast<A>(1 / std::sqrt(static_cast<double>(head_dim)))) {}

  int64_t columns() const { return inputs.shape.columns(); }
  int64_t out_columns() const { return inputs.shape.heads * head_dim; }
  // Return the offset in elements of a head in the joined tensor (query heads, then key heads, then value heads), of a head in
  // the result, and of a row in logsumexp.
  int64_t joined_at(int64_t sample, int64_t place, int64_t head) const {
    return (sample * places + place) * columns() + head * head_dim;
  }
  int64_t out_at(int64_t sample, int64_t place, int64_t head) const {
    return (sample * places + place) * out_columns() + head * head_dim;
  }
  int64_t row_at(int64_t sample, int64_t place, int64_t head) const {
    return (sample * inputs.shape.heads + head) * places + place;
  }
  int64_t key_head(int64_t kv) const { return inputs.shape.heads + kv; }
  int64_t value_head(int64_t kv) const { return inputs.shape.heads + inputs.shape.kv_heads + kv; }

  const int64_t* segments(int64_t sample) const {
    return inputs.segments.defined() ? inputs.segments.const_data_ptr<int64_t>() + sample * places : nullptr;
  }
  // Returns a range of keys that contains all keys visible to the queries of a tile. It begins at the start of a panel.
  TileRange visible(int64_t sample, TileRange queries) const {
    TileRange keys = inputs.sees.keys_of(queries, places);
    if (const int64_t* segment = segments(sample)) {
      const auto [least, most] = std::minmax_element(segment + queries.begin, segment + queries.end);
      const auto apart = [&](int64_t j) { return segment[j] < *least || segment[j] > *most; };
      while (apart(keys.begin)) ++keys.begin;
      while (apart(keys.end - 1)) --keys.end;
    }
    keys.begin -= keys.begin % kPanel;
    return keys;
  }
  // Returns the mask of a tile. kept: a buffer of kQueries * kKeys bytes, which is filled if there is dropout.
  tile::AttentionMask mask(int64_t sample, int64_t head, TileRange queries, TileRange keys, uint8_t* kept) const {
    if (inputs.dropout) fill_kept(sample, head, queries, keys, kept);
    const int64_t count = keys.end - keys.begin, *segment = segments(sample);
    tile::AttentionMask mask{.keys = count,
                             .first = {},
                             .end = {},
                             .query_segments = segment ? segment + queries.begin : nullptr,
                             .key_segments = segment ? segment + keys.begin : nullptr,
                             .keep = inputs.dropout ? kept : nullptr,
                             .keep_row = kKeys,
                             .keep_scale = inputs.dropout ? inputs.dropout->scale() : 1};
    for (int64_t i = queries.begin; i < queries.end; ++i) {
      mask.first[i - queries.begin] = std::max<int64_t>(inputs.sees.first_key(i) - keys.begin, 0);
      mask.end[i - queries.begin] = std::clamp<int64_t>(inputs.sees.end_key(i, places) - keys.begin, 0, count);
    }
    return mask;
  }
  // Fills `kept` for the visible weights of a tile.
  void fill_kept(int64_t sample, int64_t head, TileRange queries, TileRange keys, uint8_t* kept) const {
    for (int64_t i = queries.begin; i < queries.end; ++i, kept += kKeys) {
      const int64_t end = std::min(keys.end, inputs.sees.end_key(i, places));
      inputs.dropout->fill(kept, sample, ((inputs.first_head + head) * places + i) * places + keys.begin, end - keys.begin);
    }
  }
  int64_t query_tiles() const { return (places + kQueries - 1) / kQueries; }
  TileRange query_tile(int64_t index) const { return {index * kQueries, std::min((index + 1) * kQueries, places)}; }
  // Calls body(range) for each tile of keys.
  template <class Body>
  void for_keys(TileRange visible_keys, const Body& body) const {
    for (int64_t j = visible_keys.begin; j < visible_keys.end; j += kKeys)
      body(TileRange{j, std::min(j + kKeys, visible_keys.end)});
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

}  // namespace zt::nn
