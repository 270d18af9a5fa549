// The order in which the rows of tokens are sent to experts. Pure functions on plain data in host memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace zt::moe {

// The assignments of tokens to experts, sorted by expert, then by token, then by route. A token has `routes` routes, each with an
// expert or with none.
struct RowOrder {
  at::Tensor pairs;             // int64 [rows]: token * routes + route; -1 for a padding row, which no token uses
  at::Tensor places;            // int64 [tokens, routes]: the row of each assignment; -1: no expert
  std::vector<int64_t> counts;  // by expert: its rows
  int64_t rows() const { return pairs.numel(); }
};

// Returns how many routes each expert has. Throws Misuse unless each of `experts`, int64 in host memory, is from 0 to count - 1,
// or -1 for an empty route.
std::vector<int64_t> count_routes(const at::Tensor& experts, int64_t count);

// `experts`: [tokens, routes], as for `count_routes`, which it calls. With padded_rows >= 0 every expert gets exactly so many
// rows. Throws Misuse if an expert has more.
RowOrder order_rows(const at::Tensor& experts, int64_t count, int64_t padded_rows = -1);

// Returns the order from its places and counts.
RowOrder order_of(const at::Tensor& places, std::vector<int64_t> counts);

// Copies blocks of rows: `from` has blocks (i, j) in the order of i, then j; `to` gets them in the order of j, then i. Block (i,
// j) has sizes[i * columns + j] rows. Both tensors are contiguous [rows, width] of one dtype.
void swap_block_order(const at::Tensor& to, const at::Tensor& from, const std::vector<int64_t>& sizes, int64_t columns);
// Returns the sizes in the order that `swap_block_order` produces.
std::vector<int64_t> swapped_sizes(const std::vector<int64_t>& sizes, int64_t columns);

}  // namespace zt::moe
