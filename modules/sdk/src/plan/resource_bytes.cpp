// The bytes that a rank will hold of the SDK's resources outside of a step. Those of values within it come from a rehearsal.
#include <algorithm>
#include <numeric>

#include "plan/rank_plan.h"
#include "zt/base/tensor.h"
#include "zt/program/resource.h"

namespace zt {

namespace {

// Whole parameters, owned parts, and the slots of gathered ones.
int64_t param_bytes(const RankBasis& basis) {
  const RankUnits& held = basis.held;
  const Slots& slots = held.slots.of(resource::param);
  const at::ScalarType params = basis.program.precision.params;
  int64_t bytes = slots.total() * size_of(params);
  for (const Unit& unit : held.units) {
    if (!unit.plan.held) continue;
    const bool is_whole = slots.of_unit[unit.index] < 0 && !unit.is_node_shared();
    if (unit.plan.params_home.is_elsewhere()) continue;
    const int64_t elements = is_whole ? unit.layout.padded() : unit.layout.chunk;  // of one copy a node each rank counts its part
    bytes += elements * size_of(basis.model.units[unit.index].element_type(params));
  }
  return bytes;
}

int64_t grad_bytes(const RankBasis& basis) {
  const ModelInfo& model = basis.model;
  const RankProgram& program = basis.program;
  const RankUnits& held = basis.held;
  const Slots& slots = held.slots.of(resource::grad);
  int64_t elements = slots.total();
  for (const Unit& unit : held.units) {
    if (!model.units[unit.index].trainable || !unit.plan.held) continue;
    if (slots.of_unit[unit.index] < 0) elements += unit.layout.padded();
    else if (!unit.plan.grads_home.is_elsewhere()) elements += unit.layout.chunk;
  }
  const std::vector<bool> runs = positions_run(program, model);
  for (const ParamInfo& param : model.params) {
    const auto uses = std::ranges::count_if(param.positions, [&](int position) { return runs[position]; });
    if (param.trainable && uses > 1) elements += (uses - 1) * param.room;
  }
  for (const int unit : units_summed_apart(program)) elements += held.units[unit].layout.chunk;
  return elements * size_of(program.precision.grads);
}

// The elements of the owned part whose state is always in memory.
int64_t resident(const Unit& unit) {
  const Home& home = unit.plan.state_home;
  return home.is_elsewhere() ? slice_of(unit.layout.chunk, home.stays, unit.plan.slices).first : unit.layout.chunk;
}

int64_t master_bytes(const RankBasis& basis) {
  if (!basis.program.precision.is_mixed()) return 0;
  int64_t elements = 0;
  for (const Unit& unit : basis.held.units) {
    if (basis.model.units[unit.index].trainable) elements += resident(unit);
  }
  return elements * size_of(basis.program.precision.master());
}

int64_t state_bytes(const RankBasis& basis) {
  const at::ScalarType master = basis.program.precision.master();
  int64_t bytes = 0;
  for (const Unit& unit : basis.held.units) {
    if (unit.owners.empty() && basis.model.units[unit.index].trainable)
      bytes += resident(unit) * basis.optimizer_states * size_of(master);
    for (const UpdatedPart& part : unit.parts) bytes += part.state_bytes(master);
  }
  return bytes;
}

int64_t staging_bytes(const RankBasis& basis) {
  return basis.held.slots.of(resource::staging).total() * size_of(basis.program.precision.master());
}

int64_t slot_bytes(const RankBasis& basis) {
  return std::accumulate(basis.held.places.begin(), basis.held.places.end(), int64_t{0});
}

// Attaches the functions when the library is loaded.
[[maybe_unused]] const bool is_attached = [] {
  set_bytes(resource::param, param_bytes);
  set_bytes(resource::master, master_bytes);
  set_bytes(resource::grad, grad_bytes);
  set_bytes(resource::state, state_bytes);
  set_bytes(resource::staging, staging_bytes);
  set_bytes(resource::slot, slot_bytes);
  return true;
}();

}  // namespace

}  // namespace zt
