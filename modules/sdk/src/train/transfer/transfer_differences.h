// In what two trainers differ, so that one cannot take the values of the other.
#pragma once

#include <string>
#include <vector>

#include "transfer_lanes.h"

namespace zt {

struct ComparedTrainers {
  std::vector<TensorPair> pairs;         // that move, in the order of Store::tensors of `to`
  std::vector<std::string> differences;  // a line each, for people; nothing moves unless it is empty
};

// Compares tensors by name: those that `options` name. Equal on all ranks.
ComparedTrainers compare_trainers(const Store& from, const Store& to, const TransferOptions& options);

// Returns the differences in how packed matrices are cut, as this rank sees them.
std::vector<std::string> differences_of_cuts(const Moves& moves, const TransferSide& from, const TransferSide& to, int rank,
                                             int ranks);

}  // namespace zt
