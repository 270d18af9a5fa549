// Which keys a query sees by their places in the sequence. Tiles, masks, dropout and the operations of plans follow it.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "zt/base/box.h"

namespace zt::nn {

struct TileRange {
  int64_t begin, end;
};

// The places of a tensor's tokens in their sequence: ascending ranges, none empty. Row i of the tensor is the i-th of them.
class PlaceRanges {
 public:
  PlaceRanges() = default;
  explicit PlaceRanges(std::vector<Share> ranges) : ranges_(std::move(ranges)) {}
  static PlaceRanges whole(int64_t rows) { return PlaceRanges({{0, rows}}); }

  const std::vector<Share>& ranges() const { return ranges_; }
  int64_t rows() const { return rows_before(ranges_.empty() ? 0 : ranges_.back().end()); }
  // Returns the place of a row, which must exist.
  int64_t place(int64_t row) const {
    size_t i = 0;
    for (; row >= ranges_[i].count; ++i) row -= ranges_[i].count;
    return ranges_[i].begin + row;
  }
  // Returns the number of rows whose place is smaller than `place`.
  int64_t rows_before(int64_t place) const {
    int64_t rows = 0;
    for (const Share& range : ranges_) rows += std::clamp<int64_t>(place - range.begin, 0, range.count);
    return rows;
  }
  at::Tensor tensor(at::Device device) const {
    std::vector<at::Tensor> parts;
    for (const Share& range : ranges_)
      parts.push_back(at::arange(range.begin, range.end(), at::TensorOptions(at::kLong).device(device)));
    return at::cat(parts);
  }

 private:
  std::vector<Share> ranges_;
};

struct Visibility {
  bool causal = true;  // a query sees no later keys
  int64_t window = 0;  // with `causal`: a query sees only the last `window` keys, with its own; 0: all

  // Return the first key of `places` that the query at a place sees, and the end of those that it sees. Neither is smaller for a
  // later query.
  int64_t first_key(int64_t query) const { return window > 0 ? std::max<int64_t>(query + 1 - window, 0) : 0; }
  int64_t end_key(int64_t query, int64_t places) const { return causal ? query + 1 : places; }
  // Returns the keys among those at `keys` that queries see, first to last: rows. The range is empty if they see none.
  TileRange keys_of(int64_t first_query, int64_t last_query, const PlaceRanges& keys, int64_t places) const {
    const TileRange seen{keys.rows_before(first_key(first_query)), keys.rows_before(end_key(last_query, places))};
    return seen.begin < seen.end ? seen : TileRange{0, 0};
  }
  // Returns the number of pairs of a query and a key whose products are needed. With `causal`, a query and its own key count as
  // half a pair, so that a whole sequence needs half of its square.
  double pairs(const PlaceRanges& queries, const PlaceRanges& keys, int64_t places) const {
    double count = 0;
    for (int64_t row = 0; row < queries.rows(); ++row) {
      const int64_t query = queries.place(row);
      const TileRange seen = keys_of(query, query, keys, places);
      const bool has_own = causal && keys.rows_before(query) < keys.rows_before(query + 1);
      count += static_cast<double>(seen.end - seen.begin) - (has_own ? 0.5 : 0);
    }
    return count;
  }
  // Returns bools [queries, keys] on a device: element (i, j) is true if query i sees key j.
  at::Tensor mask(const PlaceRanges& queries, const PlaceRanges& keys, at::Device device) const {
    const at::Tensor query = queries.tensor(device).unsqueeze(1), key = keys.tensor(device).unsqueeze(0);
    if (!causal) return at::ones({query.size(0), key.size(1)}, at::TensorOptions(at::kBool).device(device));
    const at::Tensor seen = key <= query;
    return window > 0 ? seen.logical_and(key > query - window) : seen;
  }
};

}  // namespace zt::nn
