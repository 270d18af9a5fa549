// Sets the tensors of a store.
#pragma once

#include <optional>
#include <string>

#include "store.h"

namespace zt {

// Sets the same values on all ranks, or those of rank `from` of the mesh (collective then). Throws Misuse, on all ranks alike,
// for another shape or an unknown state. `tensor` and `param`: as in WholeTensors. No action may be in flight.
class TensorChanges {
 public:
  explicit TensorChanges(const Store& store) : store_(store) {}

  void set_parameter(int tensor, const at::Tensor& values, std::optional<int> from) const;
  void set_optimizer_state(int param, const std::string& state, const at::Tensor& values, std::optional<int> from) const;

 private:
  at::Tensor agree(int tensor, const at::Tensor& values, std::optional<int> from) const;
  void set_owned(int param, const at::Tensor& chunk, const at::Tensor& values) const;

  const Store& store_;
};

}  // namespace zt
