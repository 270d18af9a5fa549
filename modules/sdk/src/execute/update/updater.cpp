#include "updater.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "model/build/unit_build.h"
#include "zt/execute/links.h"

namespace zt {

namespace {

// Returns the segments cut to the slice, with places counted from its begin.
std::vector<Segment> segments_in(const std::vector<Segment>& segments, const Slice& slice) {
  std::vector<Segment> inside;
  for (Segment segment : segments) {
    const int64_t before = segment.begin;
    segment.begin = std::max(segment.begin, slice.first);
    segment.first += segment.begin - before;
    segment.end = std::min(segment.end, slice.end());
    if (segment.begin >= segment.end) continue;
    segment.begin -= slice.first;
    segment.end -= slice.first;
    inside.push_back(segment);
  }
  return inside;
}

// Returns the numbers of the step's updates, with the factor of its gradients.
Scalars scalars_of(const StepState& state) {
  Scalars scalars = state.scalars;
  const double clip = state.clip > 0 ? std::min(1.0, state.clip / (state.grad_norm + 1e-6)) : 1;  // as clip_grad_norm_ of torch
  scalars.grad_scale = clip / state.grad_divisor;
  return scalars;
}

// Returns the tensor, or a copy of it in pinned memory if it is on a device.
at::Tensor on_host(const at::Tensor& x) {
  return x.is_cpu() ? x : at::empty(x.sizes(), at::TensorOptions(x.scalar_type()).pinned_memory(true)).copy_(x);
}

// Returns whether no rank updates anything, and all ranks know it.
bool is_skipped(const StepState& state) {
  return !state.is_finite || !state.known_failure.empty();
}

}  // namespace

Updater::Updater(std::shared_ptr<const Optimizer> optimizer, const StepState& state) : optimizer_(std::move(optimizer)) {
  for (const Unit& unit : state.units) {
    OfUnit& mine = units_.emplace_back();
    mine.segments = segments_of(*state.model, unit, *optimizer_, state.links->place().coord);
    if (unit.gathers_tensors) mine.exchange.emplace(*state.model, unit, state.links->place().coord);
  }
}

Work Updater::step(const Action& action, StepState& state) const {
  if (!state.is_finite || state.failure) return {};  // the trainer reports it or ends the run
  Unit& unit = state.units[action.target];
  const Scalars scalars = scalars_of(state);
  if (!unit.owners.empty()) {
    step_parts(action, unit, scalars, *state.model);
    return {};
  }
  const bool is_in_memory = std::ranges::none_of(kAllData, [&](UnitData data) { return unit.is_sliced(data); });
  if (action.number("parts", 1) == 1 && is_in_memory) {
    FlatState whole{unit.master, unit.state, unit.has_own_master ? unit.shard : at::Tensor(), state.model};
    optimizer_->step(whole, unit.grad_shard, units_[action.target].segments, scalars);
    return {};
  }
  return step_slice(action, unit, scalars, *state.model);
}

Work Updater::step_slice(const Action& action, const Unit& unit, const Scalars& scalars, const ModelInfo& model) const {
  const int64_t part = action.number("part", 0), parts = action.number("parts", 1);
  const std::vector<Segment> segments = segments_in(units_[unit.index].segments, slice_of(unit.layout.chunk, part, parts));
  const UpdatedSlice slice = unit.updated_slice(part, parts);
  FlatState flat{slice.master, slice.state, slice.shard, &model};
  if (!action.is_in_host_memory()) {
    optimizer_->step(flat, slice.grad, segments, scalars);
    return {};
  }
  // Tensors on the device are copied to the host for the update, and those that it changes back.
  flat.master = on_host(slice.master);
  if (slice.shard.defined()) flat.copy = on_host(slice.shard);
  optimizer_->step(flat, on_host(slice.grad), segments, scalars);
  for (const auto& [device, host] : {std::pair(slice.master, flat.master), std::pair(slice.shard, flat.copy)}) {
    if (device.defined() && !device.is_cpu()) at::Tensor(device).copy_(host, /*non_blocking=*/true);
  }
  return {};
}

// A slice of the update is a run of the unit's parts.
void Updater::step_parts(const Action& action, Unit& unit, const Scalars& scalars, const ModelInfo& model) const {
  const int64_t part = action.number("part", 0), parts = action.number("parts", 1), count = std::ssize(unit.parts);
  for (int64_t i = count * part / parts; i < count * (part + 1) / parts; ++i) {
    const UpdatedPart& updated = unit.parts[static_cast<size_t>(i)];
    if (updated.is_whole) step_whole(updated, unit, scalars, model);
    else step_elements(updated, unit, scalars, model);
  }
}

void Updater::step_whole(const UpdatedPart& part, const Unit& unit, const Scalars& scalars, const ModelInfo& model) const {
  const ParamInfo& param = model.params[part.param];
  const auto& exchange = units_[unit.index].exchange;
  OwnedTensor tensor{param, optimizer_->group_of(param), {}, part.state};
  if (exchange) {
    tensor.values = exchange->values(unit, part.param);
    optimizer_->step_tensor(tensor, exchange->gradient(unit, part.param).mul_(scalars.grad_scale), scalars);
    return;
  }
  const auto whole = [&](const at::Tensor& flat) { return flat.narrow(0, param.offset, param.room).view(param.shape); };
  tensor.values = whole(unit.master);
  optimizer_->step_tensor(
      tensor, whole(unit.grad_shard).to(tensor.values.scalar_type(), false, /*copy=*/true).mul_(scalars.grad_scale), scalars);
  unit.round_master(param.offset, param.room);
}

void Updater::step_elements(const UpdatedPart& part, const Unit& unit, const Scalars& scalars, const ModelInfo& model) const {
  const auto& segments = units_[unit.index].segments;
  Segment segment = *std::ranges::find(segments, part.param, &Segment::param);
  const auto mine = [&](const at::Tensor& flat) { return flat.narrow(0, segment.begin, segment.end - segment.begin); };
  FlatState shard{mine(unit.master), part.state, unit.has_own_master ? mine(unit.shard) : at::Tensor(), &model};
  const at::Tensor grad = mine(unit.grad_shard);
  segment.end -= segment.begin;
  segment.begin = 0;
  optimizer_->step(shard, grad, {&segment, 1}, scalars);
}

Work Updater::gather(const Action& action, StepState& state) const {
  if (is_skipped(state)) return {};
  const Unit& unit = state.units[action.target];
  return units_[action.target].exchange->gather(unit, state.links->comm(action.axes()));
}

Work Updater::scatter(const Action& action, StepState& state) const {
  if (is_skipped(state)) return {};
  const Unit& unit = state.units[action.target];
  Communicator& comm = state.links->comm(action.axes());
  const auto& exchange = units_[action.target].exchange;
  return exchange ? exchange->scatter(unit, comm) : broadcast_tensors(*state.model, unit, comm);
}

}  // namespace zt
