// A unit: the parameters of one layer in one flat buffer. Units are sharded, communicated and freed as a whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "zt/model/home.h"

namespace zt {

// The flat layout of one unit over W ranks. Parameters start at multiples of kParamAlign elements; rank r owns
// [r * chunk, min(n, (r + 1) * chunk)) with chunk = 256 * ceil(n / (256 * W)); buffers hold W * chunk elements. Plain data.
struct FlatLayout {
  static constexpr int64_t kParamAlign = 32;
  static constexpr int64_t kBlock = 256;

  int64_t numel = 0;  // n
  int ranks = 1;      // W
  int64_t chunk = 0;

  FlatLayout() = default;
  // Throws Misuse if numel < 0 or ranks < 1.
  FlatLayout(int64_t numel, int ranks);
  int64_t padded() const { return chunk * ranks; }
  int64_t begin(int rank) const;  // both are at most n: an empty shard has begin == end
  int64_t end(int rank) const;
};

// Where the ranks that share a unit hold one kind of its data.
enum class Residence : uint8_t {
  whole,        // each rank holds all of it
  sharded,      // each rank holds the part that it owns
  node_shared,  // the ranks hold one copy together, in memory that all of them read; only for parameters
};

constexpr auto words_of(Residence) {
  return std::array{"whole", "sharded", "node_shared"};
}

// How a unit is spread over the ranks. Passes such as zero.shard decide it, and the trainer allocates accordingly. A slot is a
// place in a buffer that units share and take in turns.
struct UnitPlan {
  bool held = true;                          // false: this rank runs no position that uses the unit, and has no buffers for it
  std::vector<std::string> shard_axes = {};  // mesh axes, joined in this order, over whose ranks the unit is cut into owned parts
  std::vector<std::string> sum_axes = {};    // mesh axes over which its gradient is summed: their ranks see other data
  Residence state = Residence::whole;        // of master parameters and optimizer state
  Residence grads = Residence::whole;        // sharded: the sum is; before its reduction a gradient is whole, in a slot
  Residence params = Residence::whole;       // sharded: between UNSHARD and RESHARD they are whole, in a slot
  int slices = 1;                            // into which the owned part is cut: one STEP updates one of them
  Home state_home = {}, grads_home = {}, params_home = {};  // by UnitData: where the owned part lies between its uses
  bool operator==(const UnitPlan&) const = default;

  Home& home(UnitData data) { return data == UnitData::state ? state_home : data == UnitData::grads ? grads_home : params_home; }
  const Home& home(UnitData data) const { return const_cast<UnitPlan*>(this)->home(data); }
  // Returns whether a pass has spread the unit over ranks, whether or not this rank holds it, and wherever its data lie.
  bool is_spread() const;
  // Returns the axes of sum_axes along which the ranks hold equal shards, in order.
  std::vector<std::string> replica_axes() const;
  // Returns the axes along which gradients are reduced first and parameters gathered: shard_axes, or sum_axes without shards.
  const std::vector<std::string>& comm_axes() const { return shard_axes.empty() ? sum_axes : shard_axes; }
};

// A tensor of optimizer state of one parameter.
struct StateInfo {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::ScalarType::Undefined;  // Undefined: the master's

  at::ScalarType dtype_with(at::ScalarType master) const { return dtype == at::ScalarType::Undefined ? master : dtype; }
};

// What a rank updates of one parameter, if the optimizer needs whole tensors: all of it, where the rank owns the tensor, or the
// elements in the rank's shard, one by one.
struct UpdatedPart {
  int param = 0;  // index into ModelInfo::params
  bool is_whole = false;
  std::vector<StateInfo> states = {};  // its optimizer state, as this rank holds it
  std::map<std::string, at::Tensor> state = {};

  int64_t state_bytes(at::ScalarType master) const;
};

// A slice of one kind of a unit's data, in flat tensors by the name of a field of Unit: "master", "state.exp_avg", "shard".
struct DataSlice {
  bool is_here = false;  // in memory; without tensors otherwise
  std::map<std::string, at::Tensor> tensors = {};
};
// The elements of a slice that STEP updates, in flat tensors.
struct UpdatedSlice {
  at::Tensor master, grad;
  at::Tensor shard;  // undefined if it is the same memory as `master`
  std::map<std::string, at::Tensor> state = {};
};

// The buffers of one unit on this rank. The trainer owns them; action handlers read and write them.
struct Unit {
  int index = 0;
  UnitPlan plan;
  FlatLayout layout;                   // over the ranks of plan.shard_axes; over one rank if the optimizer state is not sharded
  int rank = 0;                        // this rank's index along these axes
  std::vector<int> holders = {0};      // indices along RankProgram::split_axes of the ranks that hold the unit, ascending
  int holder = 0;                      // this rank's place among them, 0 for the lowest; meaningless if the unit is not held
  std::vector<std::vector<int>> uses;  // by holder: the positions that it runs and that use the unit; empty with one holder
  at::Tensor full;  // [padded] all parameters; if sharded, a slot that holds them from UNSHARD to RESHARD; if node_shared, memory
                    // of all ranks, of which each writes only its own part
  at::Tensor shard;       // [chunk] the owned part of the parameters: a view into `full` unless parameters are sharded
  at::Tensor master;      // [chunk] the owned part that the optimizer updates: `shard` itself unless that has fewer bits
  at::Tensor grad;        // [padded] the gradient, summed over uses and micro-batches; undefined if no parameter is trainable.
                          // If sharded, a slot that holds it from the first backward to the reduction
  at::Tensor grad_shard;  // [chunk] the owned part of the sum: a view into `grad`, or if sharded a buffer of its own
  at::Tensor grad_sum;    // [chunk] sum of the parts reduced so far; undefined unless each micro-batch is reduced by itself
  std::map<std::string, at::Tensor> state;  // optimizer state by name, each [chunk]; empty if it is in `parts` or in slices
  // By UnitData, the slices of what lies elsewhere between its uses; empty if it does not. The tensors above are undefined then:
  // with UnitData::state `state` and `master`, if this has memory of its own; with UnitData::params `shard`, except where all of
  // it was fetched.
  std::array<std::vector<DataSlice>, kAllData.size()> slices = {};
  // If the optimizer needs whole tensors (model/tensor_owners.h):
  std::vector<UpdatedPart> parts = {};       // what this rank updates, by place in the unit
  std::vector<std::string> owner_axes = {};  // the axes among whose ranks the unit's tensors have owners
  std::vector<int> owners = {};              // by place in the unit: the owner's index along them; -1: it has none
  at::Tensor staging;                        // slot for tensors on their way to their owners and back

  bool is_node_shared() const { return plan.params == Residence::node_shared; }
  // Returns whether tensors lie in parts on the ranks among which they have owners, which therefore gather them.
  bool gathers_tensors = false;
  bool has_grad_slot = false;   // whether `grad` is a slot, which holds other units' gradients at other times
  bool has_own_master = false;  // whether `master` has memory of its own, and is not `shard`
  // Return whether `grad_shard` and `shard` have memory of their own, and are not views into `grad` and `full`.
  bool owns_grad_shard() const {
    if (is_sliced(UnitData::grads)) return plan.grads == Residence::sharded;
    return grad.defined() && !grad_shard.is_alias_of(grad);
  }
  bool owns_shard() const { return is_sliced(UnitData::params) || !shard.is_alias_of(full); }
  std::vector<DataSlice>& slices_of(UnitData data) { return slices[static_cast<size_t>(data)]; }
  const std::vector<DataSlice>& slices_of(UnitData data) const { return slices[static_cast<size_t>(data)]; }
  bool is_sliced(UnitData data) const { return !slices_of(data).empty(); }
  // Writes `master` to `shard`, rounded to nearest even. Call after `master` was changed by anything but an optimizer's step.
  void round_master() const { round_master(0, master.numel()); }
  // The same for `count` elements from `first`.
  void round_master(int64_t first, int64_t count) const {
    if (has_own_master) shard.narrow(0, first, count).copy_(master.narrow(0, first, count));
  }
  // Returns slice number `part` of `parts` slices of the owned part. Throws Fault if it is not in memory.
  UpdatedSlice updated_slice(int64_t part, int64_t parts) const;
};

}  // namespace zt
