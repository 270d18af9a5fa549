// The argument checks of communicators, once for all backends. A failed check throws Misuse before data moves. The message names
// the operation, the axis, the rank and the tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "core/group.h"
#include "core/operation.h"

namespace zt::comm {

// Throws Misuse if a size is negative, or if the tensor's bytes or strides do not fit into 64 bits.
void check_allocation(const Group& group, at::IntArrayRef shape, at::ScalarType dtype);

// Throws Misuse unless this rank is one of two different ranks of the group, and the depth is at least 1.
void check_channel(const Group& group, const ChannelPlan& plan);

class Checks {
 public:
  Checks(CallKind kind, const Group& group, std::optional<at::Device> device) : kind_(kind), group_(group), device_(device) {}

  // Throws Misuse unless the tensor is defined, contiguous, and on the backend's device.
  void tensor(const char* name, const at::Tensor& tensor) const;
  void same_dtype(const at::Tensor& out, const at::Tensor& in) const;
  void reducible(const at::Tensor& in) const;
  // Throws Misuse unless `longer` has `factor` times as many elements as `shorter`.
  void counts(const char* longer_name, const at::Tensor& longer, const char* shorter_name, const at::Tensor& shorter,
              int factor) const;
  // Throws Misuse if the two overlap in memory, unless `inner` is part number `part` of `outer`, counted in lengths of `inner`.
  // part = -1 allows no overlap at all.
  void overlap(const char* outer_name, const at::Tensor& outer, const char* inner_name, const at::Tensor& inner, int part) const;
  void rank(const char* name, int rank) const;
  void peer(int peer) const;
  // Takes the splits of dim 0 in rows, one per rank, and returns them in elements. Empty splits mean equal parts. Throws Misuse
  // unless the splits add up to the rows of the tensor.
  std::vector<int64_t> splits(const char* name, const at::Tensor& tensor, const std::vector<int64_t>& rows) const;
  void list(at::TensorList out, at::TensorList in) const;
  // Returns the start of every message: "all_reduce on axis 'dp' (rank 1 of 4)".
  std::string where() const;

 private:
  CallKind kind_;
  const Group& group_;
  std::optional<at::Device> device_;
};

}  // namespace zt::comm
