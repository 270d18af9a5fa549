// List operations: many small tensors as one message.
#pragma once

#include <vector>

#include "core/operation.h"

namespace zt::comm {

// Decides for an all_reduce, reduce_scatter or all_gather of lists which tensors go alone and which are packed into one.
// The result is that of one call each: a packed tensor is, for each rank, that rank's parts one behind the other.
class Packing {
 public:
  Packing(const Operation& operation, int ranks);

  const std::vector<size_t>& alone() const { return alone_; }
  bool empty() const { return packed_.empty(); }
  Operation single(size_t index) const;
  // The packed tensors as one operation, `in` filled in.
  Operation pack() const;
  void unpack(const Operation& packed) const;

 private:
  const Operation& operation_;
  const int ranks_;
  std::vector<size_t> alone_, packed_;
};

}  // namespace zt::comm
