// What is checked of a communicator's arguments, once for all backends. Every complaint is a Misuse that names the operation,
// the axis, the rank and the tensor, and comes before anything moved.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "group.h"
#include "operation.h"

namespace zt::comm {

// Misuse unless every size is 0 or more and the bytes of a tensor of that shape, and its strides, can be counted in 64 bits.
void check_allocation(const Group& group, at::IntArrayRef shape, at::ScalarType dtype);

class Checks {
 public:
  Checks(Kind kind, const Group& group, std::optional<at::Device> device) : kind_(kind), group_(group), device_(device) {}

  // Defined, contiguous, where the backend works.
  void tensor(const char* name, const at::Tensor& tensor) const;
  void same_dtype(const at::Tensor& out, const at::Tensor& in) const;
  void reducible(const at::Tensor& in) const;
  // `longer` holds `factor` times the elements of `shorter`.
  void counts(const char* longer_name, const at::Tensor& longer, const char* shorter_name, const at::Tensor& shorter,
              int factor) const;
  // No common memory, unless `inner` begins exactly `part` times its own length behind the start of `outer` (-1: not even then).
  void overlap(const char* outer_name, const at::Tensor& outer, const char* inner_name, const at::Tensor& inner, int part) const;
  void root(int root) const;
  void peer(int peer) const;
  // Splits of dim 0, one a rank, that add up. Returns elements instead of rows; empty splits mean equal parts.
  std::vector<int64_t> splits(const char* name, const at::Tensor& tensor, const std::vector<int64_t>& rows) const;
  void list(at::TensorList out, at::TensorList in) const;
  // The start of every message: "all_reduce on axis 'dp' (rank 1 of 4)".
  std::string where() const;

 private:
  Kind kind_;
  const Group& group_;
  std::optional<at::Device> device_;
};

}  // namespace zt::comm
