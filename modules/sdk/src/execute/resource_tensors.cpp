// Where the data of the SDK's resources lie on a rank.
#include <fmt/format.h>

#include "execute/movement/saved_tensors.h"
#include "zt/execute/executor.h"
#include "zt/program/resource.h"

namespace zt {

namespace {

using List = std::vector<NamedTensor>;

const Unit& unit_of(const Resource& resource, const StepState& state) {
  return state.units.at(static_cast<size_t>(resource.index));
}

// Adds the tensors of slices that are in memory, of names for which `is_wanted`. Those in slots belong to other units, too.
void add_slices(const Unit& unit, UnitData data, const std::function<bool(const std::string&)>& is_wanted, List& list) {
  const std::vector<DataSlice>& slices = unit.slices_of(data);
  for (size_t part = 0; part < slices.size(); ++part) {
    const Memory memory = static_cast<int>(part) < unit.plan.home(data).stays ? Memory::own : Memory::slot;
    for (const auto& [name, tensor] : slices[part].tensors) {
      if (is_wanted(name)) list.push_back({name, tensor, memory});
    }
  }
}

List param_tensors(const Resource& resource, const StepState& state) {
  const Unit& unit = unit_of(resource, state);
  const bool is_slot = unit.full.defined() && unit.owns_shard();
  return {{"full", unit.full,
           unit.is_node_shared() ? Memory::node
           : is_slot             ? Memory::slot
                                 : Memory::own},
          {"shard", unit.shard, unit.is_sliced(UnitData::params) ? Memory::slot : Memory::own}};
}

List master_tensors(const Resource& resource, const StepState& state) {
  const Unit& unit = unit_of(resource, state);
  if (!unit.has_own_master || !unit.is_sliced(UnitData::state)) return {{"master", unit.master}};
  List list;
  add_slices(
      unit, UnitData::state, [](const std::string& name) { return name == "master"; }, list);
  return list;
}

List grad_tensors(const Resource& resource, const StepState& state) {
  const Unit& unit = unit_of(resource, state);
  return {{"grad", unit.grad, unit.has_grad_slot ? Memory::slot : Memory::own},
          {"grad_shard", unit.grad_shard},
          {"grad_sum", unit.grad_sum}};
}

List state_tensors(const Resource& resource, const StepState& state) {
  List list;
  const Unit& unit = unit_of(resource, state);
  for (const auto& [name, tensor] : unit.state) list.push_back({"state." + name, tensor});
  add_slices(
      unit, UnitData::state, [](const std::string& name) { return name != "master"; }, list);
  for (const UpdatedPart& part : unit.parts) {
    for (const auto& [name, tensor] : part.state)
      list.push_back({"state." + name, tensor, Memory::own, state.model->params[part.param].name});
  }
  return list;
}

List staging_tensors(const Resource& resource, const StepState& state) {
  return {{"staging", unit_of(resource, state).staging, Memory::slot}};
}

List slot_tensors(const Resource&, const StepState& state) {
  List list;
  for (size_t slot = 0; slot < state.elsewhere.slots.size(); ++slot)
    list.push_back({fmt::format("slot.{}", slot), state.elsewhere.slots[slot]});
  return list;
}

List buffer_tensors(const Resource& resource, const StepState& state) {
  List list;
  for (size_t i = 0; i < state.buffers.size(); ++i) {
    const BufferInfo& buffer = state.model->buffers[i];
    if (buffer.layer == resource.index) list.push_back({buffer.local_name, state.buffers[i]});
  }
  return list;
}

template <const at::Tensor& (ValueStore::*Get)(const Edge&, int) const>
List output_tensors(const Resource& resource, const StepState& state) {
  List list;
  const std::vector<Output>& outputs = state.model->positions.at(static_cast<size_t>(resource.index)).outputs;
  for (int output = 0; output < static_cast<int>(outputs.size()); ++output) {
    const at::Tensor& tensor = (state.values.*Get)({resource.index, output}, resource.micro_batch);
    list.push_back({outputs[static_cast<size_t>(output)].name, is_away(tensor) ? at::Tensor() : tensor});
  }
  return list;
}

List cache_tensors(const Resource& resource, const StepState& state) {
  if (!state.kv_cache || state.model->positions.at(static_cast<size_t>(resource.index)).tokens != TokenScope::cached) return {};
  const KvLayer& layer = state.kv_cache->layer(resource.index);
  return {{"keys", layer.keys}, {"values", layer.values}, {"key_scales", layer.key_scales}, {"value_scales", layer.value_scales}};
}

}  // namespace

at::Tensor StepState::pass_buffer(ResourceId type, int32_t index) const {
  for (const auto& [buffer, values] : pass_buffers) {
    if (buffer.type == type && buffer.index == index) return values;
  }
  return {};
}

ResourceId register_pass_buffer(const std::string& name, Index of) {
  const ResourceId id = register_resource({.name = name, .index = of, .doc = "a buffer of a pass", .is_of_pass = true});
  set_tensors(id, [name](const Resource& resource, const StepState& state) {
    return List{{"buffer." + name, state.pass_buffer(resource.type, resource.index)}};
  });
  return id;
}

namespace {

// Attaches the functions when the library is loaded. What a forward has kept and what I has left to W belong to autograd, and
// scalars are numbers of the state: these types have no tensors.
[[maybe_unused]] const bool is_attached = [] {
  set_tensors(resource::param, param_tensors);
  set_tensors(resource::master, master_tensors);
  set_tensors(resource::grad, grad_tensors);
  set_tensors(resource::state, state_tensors);
  set_tensors(resource::staging, staging_tensors);
  set_tensors(resource::slot, slot_tensors);
  set_tensors(resource::buffers, buffer_tensors);
  set_tensors(resource::cache, cache_tensors);
  set_tensors(resource::value, output_tensors<&ValueStore::get>);
  set_tensors(resource::value_grad, output_tensors<&ValueStore::gradient>);
  return true;
}();

}  // namespace

}  // namespace zt
