// Reads the tensors of a store, whole.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "store.h"

namespace zt {

// Returns the view of the box's elements.
at::Tensor part_of(at::Tensor logical, const Box& box);

// `tensor` is an index of the store's TensorList, and `param` that of a parameter. All return copies of the logical tensor and
// are collective over the axes that shard the parameter's unit, cut the parameter, and split the model. No action may be in
// flight.
class WholeTensors {
 public:
  explicit WholeTensors(const Store& store) : store_(store) {}

  enum class Of : uint8_t { layers, shards };  // what layers see, or what the owners of shards have
  // Throws Misuse on all ranks unless all of them read this tensor of one trainer. Collective over the mesh if the reading is
  // collective; otherwise it does nothing. `what`: "gradient".
  void require_alike(const char* what, int tensor, Of of) const;

  at::Tensor parameter(int tensor) const;       // as layers see it
  at::Tensor master(int tensor) const;          // as the optimizer sees it, in its precision
  at::Tensor gradient_shards(int param) const;  // what the ranks hold in Unit::grad_shard, of which the sums must be complete
  std::map<std::string, at::Tensor> optimizer_state(int tensor) const;

 private:
  std::vector<int> holders_of(int tensor) const;
  bool is_held(int tensor) const;
  bool is_spread(int tensor, Of what) const;
  at::Tensor from_holders(int tensor, at::ScalarType dtype, const std::function<at::Tensor()>& make) const;
  at::Tensor join_boxes(int param, const at::Tensor& box) const;
  at::Tensor whole(int param, const at::Tensor& chunk) const;

  const Store& store_;
};

}  // namespace zt
