#include "unit_build.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "zt/base/tensor.h"
#include "zt/gemm/packed_stack.h"

namespace zt {

Unit describe_unit(const ModelInfo& model, int index, const UnitPlan& plan, const Coord& coord) {
  Unit unit;
  unit.index = index;
  unit.plan = plan;
  unit.layout = FlatLayout(plan.held ? model.units[index].numel : 0, coord.size(plan.shard_axes));
  unit.rank = coord.index(plan.shard_axes);
  return unit;
}

std::vector<std::string> names_of_state(const Precision& precision, const std::vector<std::string>& states) {
  std::vector<std::string> names;
  if (precision.is_mixed()) names.emplace_back("master");
  for (const std::string& state : states) names.push_back("state." + state);
  return names;
}

void allocate_unit(Unit& unit, const UnitInfo& info, const Precision& precision, const std::vector<std::string>& state_names,
                   const AllocateFn& allocate, const SharedBuffers& shared) {
  if (!unit.plan.held) return;
  const FlatLayout& layout = unit.layout;
  const std::vector<std::string>& axes = unit.plan.comm_axes();
  const std::vector<std::string> replica_axes = unit.plan.replica_axes();
  // Makes the whole buffer and the owned part, which is a view of the whole, or with a slot a buffer of its own, unless it lies
  // elsewhere.
  const auto make = [&](UnitData data, const at::Tensor& slot, at::ScalarType dtype, const AxesList& movers_of_owned,
                        at::Tensor& whole, at::Tensor& owned) {
    if (slot.defined()) {
      whole = slot.view(dtype).narrow(0, 0, layout.padded());
      const bool is_view = data == UnitData::grads && unit.plan.grads != Residence::sharded;  // it leaves once it is summed
      if (is_view) owned = whole.narrow(0, unit.rank * layout.chunk, layout.chunk);
      else if (!unit.plan.home(data).is_elsewhere()) owned = allocate(movers_of_owned, layout.chunk, dtype);
      return;
    }
    AxesList movers{axes};
    for (const auto& mover : movers_of_owned) {
      if (mover != axes) movers.push_back(mover);
    }
    whole = allocate(movers, layout.padded(), dtype);
    owned = whole.narrow(0, unit.rank * layout.chunk, layout.chunk);
  };
  if (unit.is_node_shared()) unit.shard = unit.full.narrow(0, unit.rank * layout.chunk, layout.chunk);
  else make(UnitData::params, shared.full, info.element_type(precision.params), {axes}, unit.full, unit.shard);
  if (unit.plan.params_home.is_elsewhere()) unit.slices_of(UnitData::params).resize(static_cast<size_t>(unit.plan.slices));
  unit.master = unit.shard;
  if (!info.trainable) return;
  make(UnitData::grads, shared.grad, precision.grads, {replica_axes.empty() ? axes : replica_axes}, unit.grad, unit.grad_shard);
  unit.has_grad_slot = shared.grad.defined();
  if (unit.plan.grads_home.is_elsewhere()) unit.slices_of(UnitData::grads).resize(static_cast<size_t>(unit.plan.slices));
  const at::TensorOptions exact = unit.full.options().dtype(precision.master());
  unit.has_own_master = precision.is_mixed();
  if (unit.plan.state_home.is_elsewhere()) {
    if (unit.has_own_master) unit.master.reset();
    const std::vector<std::string> tensors = names_of_state(precision, state_names);
    std::vector<DataSlice>& slices = unit.slices_of(UnitData::state);
    slices.resize(static_cast<size_t>(unit.plan.slices));
    for (int part = 0; part < unit.plan.state_home.stays; ++part) {
      DataSlice& slice = slices[static_cast<size_t>(part)];
      slice.is_here = true;
      for (const auto& name : tensors)
        slice.tensors[name] = large_zeros({slice_of(layout.chunk, part, unit.plan.slices).count}, exact);
    }
    return;
  }
  if (unit.has_own_master) unit.master = large_zeros({layout.chunk}, exact);
  for (UpdatedPart& part : unit.parts) {
    for (const StateInfo& info : part.states)
      part.state[info.name] = large_zeros(info.shape, exact.dtype(info.dtype_with(precision.master())));
  }
  if (!unit.owners.empty()) return;
  for (const auto& name : state_names) unit.state[name] = large_zeros({layout.chunk}, exact);
}

std::vector<at::Tensor> leaves_of(const ModelInfo& model, const std::vector<Unit>& units, const Coord& coord,
                                  at::ScalarType params) {
  std::vector<at::Tensor> leaves;
  for (const ParamInfo& param : model.params) {
    const Unit& unit = units[param.unit];
    at::Tensor& leaf = leaves.emplace_back();
    if (!unit.plan.held) continue;
    const std::vector<int64_t> shape = param.local_shape(coord);
    const at::Tensor flat = unit.full.narrow(0, param.offset, param.flat_numel(coord));
    if (param.is_packed()) {
      leaf = packed_tensor(PackedStack{param.pack, shape, flat}, params);
    } else {
      leaf = flat.view(shape).detach();
      leaf.requires_grad_(param.trainable);
    }
  }
  return leaves;
}

OwnedRun owned_run(const ParamInfo& param, const Unit& unit, const Coord& coord) {
  const int64_t shard_begin = unit.layout.begin(unit.rank), shard_end = unit.layout.end(unit.rank);
  const int64_t numel = param.flat_numel(coord);
  const int64_t begin = std::clamp(shard_begin - param.offset, int64_t{0}, numel);
  const int64_t end = std::clamp(shard_end - param.offset, begin, numel);
  return {begin, end - begin, begin < end ? param.offset + begin - shard_begin : 0};
}

namespace {

// Writes the initial values of elements [first, first + to.numel()) of a rank's boxes, rounded to `exact` first.
void initialise(const Param& param, const ParamInfo& info, uint64_t seed, std::span<const Box> boxes, int64_t first,
                const at::Tensor& to, at::ScalarType exact) {
  constexpr int64_t kStride = 1 << 16;
  std::vector<double> values(static_cast<size_t>(std::min(kStride, to.numel())));
  for (int64_t done = 0; done < to.numel(); done += kStride) {
    const int64_t count = std::min(kStride, to.numel() - done), begin = first + done;
    for_each_run(boxes, info.shape, begin, begin + count, [&](const BoxRun& run) {
      param.init(seed, info.name, run.in_tensor, {values.data() + (run.in_boxes - begin), static_cast<size_t>(run.count)});
    });
    to.narrow(0, done, count).copy_(at::from_blob(values.data(), {count}, at::kDouble).to(exact));
  }
}

}  // namespace

void initialise_slice(const Model& model, const ModelInfo& info, const Unit& unit, const Coord& coord, const Slice& slice,
                      const at::Tensor& to, at::ScalarType exact) {
  if (info.units[unit.index].is_packed) return;
  for (const int index : info.units[unit.index].params) {
    const ParamInfo& param = info.params[index];
    const OwnedRun owned = owned_run(param, unit, coord);
    const int64_t begin = std::max(owned.place, slice.first), end = std::min(owned.place + owned.count, slice.end());
    if (begin < end)
      initialise(*model.params()[index], param, model.seed(), param.boxes(coord), owned.first + begin - owned.place,
                 to.narrow(0, begin - slice.first, end - begin), exact);
  }
}

std::vector<Segment> segments_of(const ModelInfo& model, const Unit& unit, const Optimizer& optimizer, const Coord& coord) {
  std::vector<Segment> segments;
  if (!unit.plan.held) return segments;
  for (const int index : model.units[unit.index].params) {
    const ParamInfo& param = model.params[index];
    const int group = param.trainable ? optimizer.group_of(param) : -1;
    const OwnedRun owned = owned_run(param, unit, coord);
    if (group >= 0 && owned.count > 0) segments.push_back({index, group, owned.place, owned.place + owned.count, owned.first});
  }
  return segments;
}

}  // namespace zt
