// A rank's values: parameters, gradients, optimizer state and the buffers of layers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/build/unit_build.h"
#include "packed_values.h"
#include "plan/plan.h"
#include "zt/base/stateful.h"
#include "zt/train/tensors.h"

namespace zt {

// A buffer, and the axes whose communicators move it without a copy if they can.
struct MadeBuffer {
  at::Tensor buffer;
  AxesList movers;
};
// Makes such a buffer, [numel] zeros on the rank's device. Collective over `movers`.
at::Tensor make_buffer(const StepState& state, const AxesList& movers, int64_t numel, at::ScalarType dtype);

// Gives the units, the layers' buffers and the send buffer of `state` their memory, and the parameters of the shards their
// initial values. Returns what it has made by make_buffer. `state` has the plan's units and links. Collective over the axes of
// the units. Throws OutOfMemory, with the unit, if there is not enough memory, and Misuse for initial values that do not fit.
std::vector<MadeBuffer> allocate_state(const Plan& plan, StepState& state);

enum class Buffers : uint8_t { allocated, none };

// whole_tensors.h reads and sets what it holds by name. An index of a tensor counts the parameters, as ModelInfo::params, then
// the buffers of layers.
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
  // Returns a number that no other store of this process has.
  int64_t number() const { return number_; }
  const std::vector<ModelTensor>& tensors() const { return tensors_; }
  // Return the index of the tensor, or of the parameter. Throw Misuse with the nearest name; the second also for a buffer of a
  // layer, which lacks `what`.
  int find(const std::string& name) const;
  int find_parameter(const std::string& name, const char* what) const;
  bool is_buffer(int tensor) const { return buffer_index(tensor) >= 0; }
  int buffer_index(int tensor) const { return tensor - static_cast<int>(state_.model->params.size()); }  // in ModelInfo::buffers

  const RankPlace& place() const { return state_.links->place(); }
  const ParamInfo& info(int param) const { return state_.model->params[param]; }
  const Unit& unit_of(int param) const { return state_.units[info(param).unit]; }
  // Returns the ranks among which the unit is sharded.
  Communicator& shard_axes_of(const Unit& unit) const { return state_.links->comm(unit.plan.shard_axes); }
  // Returns what this rank updates of the parameter, if the optimizer needs whole tensors; null if it updates nothing of it.
  const UpdatedPart* updated_part(int param) const;
  // Returns the part of the parameter that lies in this rank's shard, as a piece of the whole tensor. `chunk`: the shard's
  // buffer.
  Piece piece_of(int param, const at::Tensor& chunk) const;
  // The same for a tensor of these elements alone.
  Piece run_of(int param, const at::Tensor& run) const;
  // The same for a tensor of owned_data.h, wherever its slices lie.
  Piece sliced_piece_of(int param, const std::string& tensor) const;
  OwnedRun owned(int param) const { return owned_run(info(param), unit_of(param), place().coord); }

  // Gives all tensors to the visitor but packed ones, of which it gives hashes. Call `gather_parameters` after a load.
  void visit_tensors(Visitor& visitor);
  // Gives the parameters of all units the values that their owners hold. Units that are gathered for each use stay as they are.
  // Collective over the axes of the units.
  void gather_parameters();

  // Bytes held on this rank by kind: parameters, master, gradients, optimizer, buffers of passes, buckets.
  std::map<std::string, int64_t> bytes() const;
  // Returns memory of the device, as this one of the store's was made. Collective if that was.
  at::Tensor memory_like(const c10::StorageImpl* storage, int64_t bytes) const;
  // Lets the communicators free memory that was given back.
  void free_memory() const;

 private:
  std::vector<std::string> sliced_tensors(const Unit& unit, ResourceId type) const;
  void visit_units(Visitor& visitor) const;
  void visit_layers(Visitor& visitor) const;
  void visit_pass_buffers(Visitor& visitor) const;
  void await_readers() const;

  std::shared_ptr<const Plan> plan_;
  const int64_t number_;
  std::vector<ModelTensor> tensors_;
  StepState state_;
  std::vector<MadeBuffer> made_;
  PackedValues packed_;
};

}  // namespace zt
