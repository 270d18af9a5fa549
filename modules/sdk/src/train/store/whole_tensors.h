// The tensors of a store, whole.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "store.h"

// `tensor` is an index of Store::tensors, and `param` that of a parameter. No action may be in flight.
namespace zt::whole_tensors {

enum class Of : uint8_t { layers, shards, states };  // what layers see, what the owners of shards have, or optimizer state
// Throws Misuse on all ranks unless all of them read this tensor of one trainer, and none has a complaint: why it cannot be read.
// Collective over the mesh if the reading is collective. `what`: "gradient".
void require_alike(const Store& store, const char* what, int tensor, Of of, const std::string& complaint = {});

// Return copies of the whole tensor. Collective over the axes that shard the parameter's unit, cut the parameter, and split the
// model.
at::Tensor parameter(const Store& store, int tensor);       // as layers see it
at::Tensor master(const Store& store, int tensor);          // as the optimizer sees it, in its precision
at::Tensor gradient_shards(const Store& store, int param);  // what the ranks hold in Unit::grad_shard: complete sums
std::map<std::string, at::Tensor> optimizer_state(const Store& store, int tensor);
// Returns the tensor of the parameter in a sharded buffer of a pass. Throws Misuse if there is none.
at::Tensor pass_buffer(const Store& store, const std::string& buffer, int param);

// Values to set: the same on all ranks, or those of rank `from` of the mesh.
struct Given {
  const at::Tensor& values;
  std::optional<int> from = {};
  std::string complaint = {};  // why this rank cannot set them
};
// Collective. Throw Misuse, on all ranks alike, for another shape or an unknown state, and if a rank has a complaint.
void set_parameter(Store& store, int tensor, const Given& given);
void set_optimizer_state(Store& store, int param, const std::string& state, const Given& given);
// Sets this rank's part of a parameter. `values`: of the whole parameter, or the bytes of the whole packed matrix. Not
// collective; of a unit that is node_shared, no other rank may be reading it.
void write_held(const Store& store, int param, const at::Tensor& values);

}  // namespace zt::whole_tensors
