#include "exchange/row_order.h"

#include <ATen/ops/full.h>

#include <cstring>
#include <numeric>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::moe {

namespace {

// Returns the first row of each block.
std::vector<int64_t> begins_of(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> begins(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), begins.begin(), int64_t{0});
  return begins;
}

}  // namespace

std::vector<int64_t> count_routes(const at::Tensor& experts, int64_t count) {
  const at::Tensor given = experts.contiguous();
  const auto* expert_of = given.const_data_ptr<int64_t>();
  std::vector<int64_t> routes(static_cast<size_t>(count), 0);
  for (int64_t pair = 0; pair < given.numel(); ++pair) {
    if (expert_of[pair] < -1 || expert_of[pair] >= count)
      misuse("a token is assigned to expert {}, but there are {} (the first is 0)", expert_of[pair], count);
    if (expert_of[pair] >= 0) ++routes[static_cast<size_t>(expert_of[pair])];
  }
  return routes;
}

RowOrder order_rows(const at::Tensor& experts, int64_t count, int64_t padded_rows) {
  const at::Tensor given = experts.contiguous();
  const auto* expert_of = given.const_data_ptr<int64_t>();
  const std::vector<int64_t> used = count_routes(given, count);
  RowOrder order;
  order.counts = used;
  if (padded_rows >= 0) {
    for (int64_t expert = 0; expert < count; ++expert) {
      if (used[static_cast<size_t>(expert)] > padded_rows)
        misuse("expert {} has {} and room for {}", expert, counted(used[static_cast<size_t>(expert)], "token"), padded_rows);
    }
    order.counts.assign(static_cast<size_t>(count), padded_rows);
  }
  std::vector<int64_t> next = begins_of(order.counts);
  const int64_t rows = std::accumulate(order.counts.begin(), order.counts.end(), int64_t{0});
  order.pairs = at::full({rows}, -1, at::kLong);
  order.places = at::full(given.sizes(), -1, at::kLong);
  auto* pairs = order.pairs.mutable_data_ptr<int64_t>();
  auto* places = order.places.mutable_data_ptr<int64_t>();
  for (int64_t pair = 0; pair < given.numel(); ++pair) {
    if (expert_of[pair] < 0) continue;
    const int64_t row = next[static_cast<size_t>(expert_of[pair])]++;
    pairs[row] = pair;
    places[pair] = row;
  }
  return order;
}

RowOrder order_of(const at::Tensor& places, std::vector<int64_t> counts) {
  const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  RowOrder order{at::full({rows}, -1, at::kLong), places.contiguous(), std::move(counts)};
  const auto* place_of = order.places.const_data_ptr<int64_t>();
  auto* pairs = order.pairs.mutable_data_ptr<int64_t>();
  for (int64_t pair = 0; pair < places.numel(); ++pair) {
    if (place_of[pair] >= 0) pairs[place_of[pair]] = pair;
  }
  return order;
}

std::vector<int64_t> swapped_sizes(const std::vector<int64_t>& sizes, int64_t columns) {
  std::vector<int64_t> swapped;
  const int64_t rows = static_cast<int64_t>(sizes.size()) / columns;
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) swapped.push_back(sizes[static_cast<size_t>(i * columns + j)]);
  }
  return swapped;
}

void swap_block_order(const at::Tensor& to, const at::Tensor& from, const std::vector<int64_t>& sizes, int64_t columns) {
  const std::vector<int64_t> from_begins = begins_of(sizes), to_begins = begins_of(swapped_sizes(sizes, columns));
  const int64_t lines = static_cast<int64_t>(sizes.size()) / columns;
  const auto row_bytes = static_cast<int64_t>(from.size(1) * from.itemsize());
  for (int64_t i = 0; i < lines; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const auto source = static_cast<size_t>(i * columns + j), target = static_cast<size_t>(j * lines + i);
      if (sizes[source] == 0) continue;
      if (!is_for_host(from)) {
        to.narrow(0, to_begins[target], sizes[source]).copy_(from.narrow(0, from_begins[source], sizes[source]));
        continue;
      }
      std::memcpy(static_cast<char*>(to.mutable_data_ptr()) + to_begins[target] * row_bytes,
                  static_cast<const char*>(from.const_data_ptr()) + from_begins[source] * row_bytes,
                  static_cast<size_t>(sizes[source] * row_bytes));
    }
  }
}

}  // namespace zt::moe
