// List operations: many small tensors as one message.
#pragma once

#include <vector>

#include "core/operation.h"

namespace zt::comm {

// Divides an all_reduce, reduce_scatter or all_gather of lists: long tensors are sent alone, small ones are packed into one
// tensor. The results are those of one call per tensor. In the packed tensor, the parts of one rank lie one after the other.
class Packing {
 public:
  Packing(const Operation& operation, int ranks);

  const std::vector<size_t>& alone() const { return alone_; }
  bool empty() const { return packed_.empty(); }
  Operation single(size_t index) const;
  // Returns one operation on the packed tensor, with `in` filled in.
  Operation pack() const;
  // Copies the results of `packed` to the tensors of the list.
  void unpack(const Operation& packed) const;

 private:
  const Operation& operation_;
  const int ranks_;
  std::vector<size_t> alone_, packed_;
};

}  // namespace zt::comm
