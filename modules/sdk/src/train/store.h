// A rank's buffers: parameters, gradients and optimizer state, by the names of parameters.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "model/unit_build.h"
#include "plan/plan.h"
#include "zt/base/stateful.h"

namespace zt {

enum class Buffers : uint8_t { allocated, none };

// `param` is a parameter's index in ModelInfo::params. Functions that return whole tensors return copies of the logical
// tensor and are collective over the axes that shard the parameter's unit and cut the parameter. No action may be in flight.
//
// Invariants: (1) the units' buffers never move; (2) a Param's `values` is a view into them.
// Threads: the rank's thread only.
class Store {
 public:
  // Allocates the buffers and fills in the initial values. With Buffers::none the units have none, and only `state`, `find` and
  // `info` may be called. Collective over the axes of the units.
  Store(std::shared_ptr<const Plan> plan, const Optimizer& optimizer, Buffers buffers);
  ~Store();  // the model's parameters have no values afterwards
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  StepState& state() { return state_; }
  const StepState& state() const { return state_; }

  // Returns the index of the parameter. Throws Misuse with the nearest name.
  int find(const std::string& name) const;
  const ParamInfo& info(int param) const { return state_.model->params[param]; }

  at::Tensor parameter(int param) const;        // as layers see it
  at::ScalarType dtype(int param) const;        // of parameter(param)
  at::Tensor master(int param) const;           // as the optimizer sees it
  at::Tensor gradient_shards(int param) const;  // what the ranks hold in Unit::grad_shard, of which the sums must be complete
  std::map<std::string, at::Tensor> optimizer_state(int param) const;

  // Sets the same values on all ranks, or those of rank `from` of the mesh (collective then). Throws Misuse, on all ranks alike,
  // for another shape or an unknown state.
  void set_parameter(int param, const at::Tensor& values, std::optional<int> from) const;
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
  void allocate_units();
  void release_parameters() const;
  void await_readers() const;
  const Unit& unit_of(int param) const { return state_.units[info(param).unit]; }
  at::Tensor from_holders(int param, at::ScalarType dtype, const std::function<at::Tensor()>& make) const;
  at::Tensor join_boxes(int param, const at::Tensor& box) const;
  at::Tensor whole(int param, const at::Tensor& chunk) const;
  at::Tensor agree(int param, const at::Tensor& values, std::optional<int> from) const;
  void set_owned(int param, const at::Tensor& chunk, const at::Tensor& values) const;
  Piece piece_of(int param, const at::Tensor& chunk) const;
  void visit_buffers(Visitor& visitor) const;

  std::shared_ptr<const Plan> plan_;
  std::vector<std::string> state_names_;  // of the optimizer
  StepState state_;
};

}  // namespace zt
