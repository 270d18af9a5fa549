#include "store.h"

#include <set>

#include "execute/counts.h"
#include "train/memory_check.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/base/zeros.h"

namespace zt {

namespace {

// Counts memory that several tensors share once, for the first of them.
class Storages {
 public:
  int64_t add(const NamedTensor& named) {
    const at::Tensor& tensor = named.tensor;
    if (!tensor.defined()) return 0;
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    if (named.memory == Memory::node) {  // counted by the parts that the ranks own
      of_nodes_.insert(storage);
      return 0;
    }
    if (of_nodes_.contains(storage)) return seen_.insert(tensor.const_data_ptr()).second ? int64_t(tensor.nbytes()) : 0;
    return seen_.insert(storage).second ? static_cast<int64_t>(tensor.storage().nbytes()) : 0;
  }

 private:
  std::set<const void*> seen_, of_nodes_;
};

}  // namespace

Store::Store(std::shared_ptr<const Plan> plan, std::shared_ptr<const Links> links, Buffers buffers)
    : plan_(std::move(plan)), state_names_(plan_->state_names()) {
  state_.model = &plan_->model();
  state_.links = std::move(links);
  state_.coord = plan_->spec().coord();
  state_.sample_axes = plan_->data_axes();
  state_.split_axes = plan_->main().split_axes;
  state_.units = plan_->held().units;
  list_tensors();
  if (buffers == Buffers::none) return;
  allocate_units();
  allocate_buffers();
}

at::Tensor Store::allocate(const AxesList& movers, int64_t numel, at::ScalarType dtype) const {
  std::vector<Communicator*> comms;
  for (const auto& axes : movers) {
    if (axes.empty()) continue;
    Communicator& comm = state_.links->comm(axes);
    if (comm.device()) comms.push_back(&comm);
  }
  if (comms.empty()) return large_zeros({numel}, at::device(state_.links->device()).dtype(dtype));
  return comms.front()->allocate({numel}, dtype, {comms.begin() + 1, comms.end()});
}

// One buffer per slot. The units of a slot usually move along the same axes; the first unit's decide.
std::vector<at::Tensor> Store::allocate_slots(const Slots& slots, at::ScalarType dtype) const {
  std::vector<at::Tensor> buffers;
  for (size_t slot = 0; slot < slots.sizes.size(); ++slot) {
    const auto first = std::ranges::find(slots.of_unit, static_cast<int>(slot)) - slots.of_unit.begin();
    buffers.push_back(allocate({state_.units[static_cast<size_t>(first)].plan.comm_axes()}, slots.sizes[slot], dtype));
  }
  return buffers;
}

// "unit 4, 'blocks.3.mlp.up.weight' [4096, 1024] and 5 more parameters"
std::string Store::unit_text(const Unit& unit) const {
  const std::vector<int>& params = state_.model->units[unit.index].params;
  const ParamInfo& first = state_.model->params[params.front()];
  std::string text = fmt::format("unit {}, '{}' [{}]", unit.index, first.name, fmt::join(first.shape, ", "));
  if (params.size() > 1) text += fmt::format(" and {} more parameters", params.size() - 1);
  return text;
}

// Programs of all modes use the same buffers, so parameters never move.
void Store::allocate_units() {
  const Program& program = plan_->main();
  const Precision& precision = program.precision;
  const SharedSlots& slots = plan_->held().slots;
  const Slots &of_params = slots.of(resource::param), &of_grads = slots.of(resource::grad);
  const auto parameters = allocate_slots(of_params, precision.params), gradients = allocate_slots(of_grads, precision.grads);
  const auto buffer = [](const std::vector<at::Tensor>& buffers, int slot) { return slot < 0 ? at::Tensor() : buffers[slot]; };
  const AllocateFn make = [this](const auto& movers, int64_t numel, at::ScalarType dtype) {
    return allocate(movers, numel, dtype);
  };
  for (Unit& unit : state_.units) {
    const SharedBuffers shared{buffer(parameters, of_params.of_unit[unit.index]),
                               buffer(gradients, of_grads.of_unit[unit.index])};
    if (unit.plan.held && unit.is_node_shared())
      unit.full = axis_of(unit).allocate_shared({unit.layout.padded()}, precision.params);
    try {
      allocate_unit(unit, state_.model->units[unit.index], precision, state_names_, make, shared);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      throw OutOfMemory(
          fmt::format("the buffers of {}: {}. {}", unit_text(unit), describe(error), memory_advice(*plan_, Lacking::buffers)));
    }
  }
  run_together(plan_->world(), [&] {  // values that a script gives may be wrong
    for (const Unit& unit : state_.units)
      initialise_unit(*plan_->spec().model(), *state_.model, unit, state_.coord, precision.master());
  });
  state_.parameters = leaves_of(*state_.model, state_.units);
  for (const int unit : units_summed_apart(program))
    state_.units[unit].grad_sum = allocate({}, state_.units[unit].layout.chunk, precision.grads);
  if (const int64_t elements = wire_elements(program, state_.units); elements > 0)
    state_.wire = allocate({plan_->data_axes()}, elements, precision.reduce);
  gather_parameters();
}

// The buffers of the layers that this rank runs.
void Store::allocate_buffers() {
  const ModelInfo& model = *state_.model;
  const std::vector<bool> runs = positions_run(plan_->main(), model);
  for (const BufferInfo& buffer : model.buffers) {
    at::Tensor& values = state_.buffers.emplace_back();
    for (size_t p = 0; p < runs.size(); ++p) {
      if (runs[p] && model.positions[p].layer == buffer.layer && !values.defined())
        values = buffer.initial.to(state_.links->device(), buffer.initial.scalar_type(), false, /*copy=*/true).contiguous();
    }
  }
}

void Store::gather_parameters() const {
  for (const Unit& unit : state_.units) {
    if (!unit.plan.held) continue;
    unit.round_master();
    if (unit.is_node_shared()) axis_of(unit).barrier();
    else if (unit.layout.ranks > 1 && !unit.owns_shard()) axis_of(unit).all_gather(unit.full, unit.shard).synchronize();
  }
}

std::map<std::string, int64_t> Store::bytes() const {
  std::map<std::string, int64_t> bytes{{"buckets", state_.wire.defined() ? static_cast<int64_t>(state_.wire.nbytes()) : 0}};
  Storages storages;
  for (const ResourceId id : resource_ids()) {
    const ResourceType& type = type_of(id);
    const TensorsOf* tensors = tensors_of(id);
    if (type.memory.empty() || !tensors) continue;
    int64_t& held = bytes[type.memory];
    for (int32_t index = 0; index < count_of(type.index, *state_.model); ++index) {
      for (const NamedTensor& named : (*tensors)({.type = id, .index = index}, state_)) held += storages.add(named);
    }
  }
  return bytes;
}

}  // namespace zt
