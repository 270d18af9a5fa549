// A rank's values: parameters, gradients, optimizer state and the buffers of layers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/unit_build.h"
#include "plan/plan.h"
#include "tensor_list.h"
#include "zt/base/stateful.h"

namespace zt {

enum class Buffers : uint8_t { allocated, none };

// WholeTensors reads and TensorChanges sets what it holds by name.
//
// Invariants: (1) the units' buffers never move; (2) StepState::parameters are views into them.
// Threads: the rank's thread only.
class Store {
 public:
  // Allocates the buffers and fills in the initial values. With Buffers::none the units have none, and only `state` and
  // `tensors` may be used. Collective over the axes of the units.
  Store(std::shared_ptr<const Plan> plan, std::shared_ptr<const Links> links, Buffers buffers);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  StepState& state() { return state_; }
  const StepState& state() const { return state_; }
  const Plan& plan() const { return *plan_; }
  const TensorList& tensors() const { return tensors_; }

  const RankPlace& place() const { return state_.links->place(); }
  const ParamInfo& info(int param) const { return state_.model->params[param]; }
  const Unit& unit_of(int param) const { return state_.units[info(param).unit]; }
  // Returns the ranks among which the unit is sharded.
  Communicator& shard_axes_of(const Unit& unit) const { return state_.links->comm(unit.plan.shard_axes); }
  // Returns the part of the parameter that lies in this rank's shard, as a piece of the logical tensor. `chunk`: the shard's
  // buffer.
  Piece piece_of(int param, const at::Tensor& chunk) const;

  // Gives all tensors to the visitor. Call `gather_parameters` after a load.
  void visit_tensors(Visitor& visitor) const;
  // Gives the parameters of all units the values that their owners hold. Units that are gathered for each use stay as they are.
  // Collective over the axes of the units.
  void gather_parameters() const;

  // Bytes held on this rank by kind: parameters, master, gradients, optimizer, buckets.
  std::map<std::string, int64_t> bytes() const;

 private:
  void visit_units(Visitor& visitor) const;
  void visit_layers(Visitor& visitor) const;
  void await_readers() const;

  std::shared_ptr<const Plan> plan_;
  TensorList tensors_;
  StepState state_;
};

}  // namespace zt
