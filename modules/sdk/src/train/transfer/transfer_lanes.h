// What moves between two trainers, and how.
#pragma once

#include <vector>

#include "transfer_packing.h"
#include "transfer_side.h"
#include "zt/train/transfer.h"

namespace zt {

// A tensor of `to`, and the one of `from` whose values it takes. Numbered as in Store.
struct TensorPair {
  int to = 0, from = 0;
};

// How a lane sets its tensor.
enum class LaneTarget : uint8_t {
  buffer,         // a tensor that layers change themselves
  values,         // what the rank owns, with its master, or all that it has
  outside_owned,  // what layers see beside the owned part, if that has a master
  packed_bytes,   // bytes of a packed matrix
  packed_rows,    // a packed matrix, which is packed from rows of values
};

struct LaneKind {
  TensorPair tensor;
  ValuesOf source = ValuesOf::layers;
  LaneTarget target = LaneTarget::values;
  at::ScalarType travels = at::kFloat;
  std::vector<PackedRows> rows = {};  // of packed_rows, on this rank: by part
};

// A tensor that each rank needs whole to make its part of it.
struct WholeMove {
  TensorPair tensor;
  ValuesOf source = ValuesOf::layers;
  std::vector<AdapterProduct> products = {};
};

struct Moves {
  std::vector<LaneKind> lanes;
  std::vector<WholeMove> whole;
};

// Returns whether both are packed and have the same bytes for the same values.
bool are_packed_alike(const PackSpec& a, const PackSpec& b);

// Returns how the pairs move. Equal on all ranks, but for `rows`. `most_bytes`: of a part of a lane.
Moves moves_of(const TransferSide& from, const TransferSide& to, const std::vector<TensorPair>& pairs,
               const std::vector<AdapterProduct>& merged, int rank, int64_t most_bytes);

// Returns the lane that the plan needs. `rank`: this one of `ranks`.
TransferLane lane_of(const LaneKind& kind, const TransferSide& from, const TransferSide& to, int rank, int ranks,
                     int64_t most_bytes);
// Returns where its elements lie on this rank now.
TransferEnds ends_of(const LaneKind& kind, const Store& from, const Store& to);

}  // namespace zt
