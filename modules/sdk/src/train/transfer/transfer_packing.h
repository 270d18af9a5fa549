// Packs a parameter from rows that arrive one after the other.
#pragma once

#include "transfer_ends.h"

namespace zt {

// Rows of one matrix of a packed parameter. They begin a panel of 16 rows, so their bytes are a range of the parameter's.
struct PackedRows {
  int64_t matrix = 0, first = 0, count = 0;
  int64_t byte = 0, bytes = 0;  // the range, counted in what the rank holds of the parameter
};

// Returns whether a matrix may be packed row by row: whether no number in its bytes depends on all of its rows.
bool packs_by_rows(const PackSpec& spec);

// Returns the rows of which the bytes [first, first + count) of a parameter of this local shape are, in parts of at most `most`
// elements, but of 16 rows at least.
std::vector<PackedRows> packed_rows(const PackSpec& spec, const std::vector<int64_t>& shape, Share wanted, int64_t most);

// Returns a target of the rank's elements of the packed parameter, whose part i has the rows rows[i], of `dtype`. Its `complete`
// throws Misuse for elements that are not finite, and Fault for those that the format cannot hold.
std::shared_ptr<TransferTarget> packing_target(const Store& store, int param, std::vector<PackedRows> rows, at::ScalarType dtype);

}  // namespace zt
