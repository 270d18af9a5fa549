// A rank's values: parameters, gradients, optimizer state and the buffers of layers, by name.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "model/unit_build.h"
#include "plan/plan.h"
#include "zt/base/stateful.h"
#include "zt/train/trainer.h"

namespace zt {

enum class Buffers : uint8_t { allocated, none };

// `tensor` is an index in `tensors`, and `param` one in ModelInfo::params: parameters have the same index in both. Functions that
// return whole tensors return copies of the logical tensor and are collective over the axes that shard the parameter's unit, cut
// the parameter, and split the model. No action may be in flight.
//
// Invariants: (1) the units' buffers never move; (2) StepState::parameters are views into them.
// Threads: the rank's thread only.
class Store {
 public:
  // Allocates the buffers and fills in the initial values. With Buffers::none the units have none, and only `state`,
  // `tensors`, `find` and `info` may be called. Collective over the axes of the units.
  Store(std::shared_ptr<const Plan> plan, std::shared_ptr<const Links> links, Buffers buffers);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  StepState& state() { return state_; }
  const StepState& state() const { return state_; }

  // The tensors of the model's state: the parameters, then the buffers of layers.
  const std::vector<ModelTensor>& tensors() const { return tensors_; }
  // Returns the index of the tensor. Throws Misuse with the nearest name.
  int find(const std::string& name) const;
  // Returns the index of the parameter. Throws Misuse as `find`, and for a buffer of a layer, which lacks `what`.
  int find_parameter(const std::string& name, const char* what) const;
  const ParamInfo& info(int param) const { return state_.model->params[param]; }

  at::Tensor parameter(int tensor) const;       // as layers see it
  at::Tensor master(int tensor) const;          // as the optimizer sees it, in its precision
  at::Tensor gradient_shards(int param) const;  // what the ranks hold in Unit::grad_shard, of which the sums must be complete
  std::map<std::string, at::Tensor> optimizer_state(int tensor) const;

  // Sets the same values on all ranks, or those of rank `from` of the mesh (collective then). Throws Misuse, on all ranks alike,
  // for another shape or an unknown state.
  void set_parameter(int tensor, const at::Tensor& values, std::optional<int> from) const;
  void set_optimizer_state(int param, const std::string& state, const at::Tensor& values, std::optional<int> from) const;

  // Gives all tensors to the visitor. Call `gather_parameters` after a load.
  void visit_tensors(Visitor& visitor) const;
  // Gives the parameters of all units the values that their owners hold. Units that are gathered for each use stay as they are.
  // Collective over the axes of the units.
  void gather_parameters() const;

  // Bytes held on this rank by kind: parameters, master, gradients, optimizer, buckets.
  std::map<std::string, int64_t> bytes() const;

 private:
  at::Tensor allocate(const AxesList& movers, int64_t numel, at::ScalarType dtype) const;
  std::vector<at::Tensor> allocate_slots(const Slots& slots, at::ScalarType dtype) const;
  std::string unit_text(const Unit& unit) const;
  void allocate_units();
  void allocate_buffers();
  void visit_units(Visitor& visitor) const;
  void visit_layers(Visitor& visitor) const;
  Communicator& axis_of(const Unit& unit) const { return state_.links->comm(unit.plan.shard_axes); }
  void await_readers() const;
  const Unit& unit_of(int param) const { return state_.units[info(param).unit]; }
  bool is_buffer(int tensor) const { return tensor >= static_cast<int>(state_.model->params.size()); }
  size_t buffer_index(int tensor) const { return static_cast<size_t>(tensor) - state_.model->params.size(); }
  void list_tensors();
  std::vector<int> holders_of(int tensor) const;
  bool is_held(int tensor) const;
  at::Tensor from_holders(int tensor, at::ScalarType dtype, const std::function<at::Tensor()>& make) const;
  at::Tensor join_boxes(int param, const at::Tensor& box) const;
  at::Tensor whole(int param, const at::Tensor& chunk) const;
  at::Tensor agree(int tensor, const at::Tensor& values, std::optional<int> from) const;
  void set_owned(int param, const at::Tensor& chunk, const at::Tensor& values) const;
  Piece piece_of(int param, const at::Tensor& chunk) const;

  std::shared_ptr<const Plan> plan_;
  std::vector<std::string> state_names_;  // of the optimizer
  std::vector<ModelTensor> tensors_;      // the parameters, then the buffers, as in ModelInfo
  StepState state_;
};

}  // namespace zt
