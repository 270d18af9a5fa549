#include "allocation.h"

#include <algorithm>

#include "execute/counts.h"
#include "model/unit_build.h"
#include "train/memory_check.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

class Allocation {
 public:
  Allocation(const Plan& plan, StepState& state) : plan_(plan), state_(state) {}

  void units();
  void buffers();

 private:
  at::Tensor make(const AxesList& movers, int64_t numel, at::ScalarType dtype) const;
  std::vector<at::Tensor> slots_of(const Slots& slots, at::ScalarType dtype) const;
  std::string unit_text(const Unit& unit) const;

  const Plan& plan_;
  StepState& state_;
};

at::Tensor Allocation::make(const AxesList& movers, int64_t numel, at::ScalarType dtype) const {
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
std::vector<at::Tensor> Allocation::slots_of(const Slots& slots, at::ScalarType dtype) const {
  std::vector<at::Tensor> buffers;
  for (size_t slot = 0; slot < slots.sizes.size(); ++slot) {
    const auto first = std::ranges::find(slots.of_unit, static_cast<int>(slot)) - slots.of_unit.begin();
    buffers.push_back(make({state_.units[static_cast<size_t>(first)].plan.comm_axes()}, slots.sizes[slot], dtype));
  }
  return buffers;
}

// "unit 4, 'blocks.3.mlp.up.weight' [4096, 1024] and 5 more parameters"
std::string Allocation::unit_text(const Unit& unit) const {
  const std::vector<int>& params = state_.model->units[unit.index].params;
  const ParamInfo& first = state_.model->params[params.front()];
  std::string text = fmt::format("unit {}, '{}' [{}]", unit.index, first.name, fmt::join(first.shape, ", "));
  if (params.size() > 1) text += fmt::format(" and {} more parameters", params.size() - 1);
  return text;
}

// Programs of all modes use the same buffers, so parameters never move.
void Allocation::units() {
  const std::vector<std::string> state_names = plan_.state_names();
  const RankProgram& program = plan_.main();
  const Precision& precision = program.precision;
  const SharedSlots& slots = plan_.rank_units().slots;
  const Slots &of_params = slots.of(resource::param), &of_grads = slots.of(resource::grad);
  const auto parameters = slots_of(of_params, precision.params), gradients = slots_of(of_grads, precision.grads);
  const auto buffer = [](const std::vector<at::Tensor>& buffers, int slot) { return slot < 0 ? at::Tensor() : buffers[slot]; };
  const AllocateFn allocate = [this](const auto& movers, int64_t numel, at::ScalarType dtype) {
    return make(movers, numel, dtype);
  };
  for (Unit& unit : state_.units) {
    const SharedBuffers shared{buffer(parameters, of_params.of_unit[unit.index]),
                               buffer(gradients, of_grads.of_unit[unit.index])};
    if (unit.plan.held && unit.is_node_shared())
      unit.full = state_.links->comm(unit.plan.shard_axes).allocate_shared({unit.layout.padded()}, precision.params);
    try {
      allocate_unit(unit, state_.model->units[unit.index], precision, state_names, allocate, shared);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      throw OutOfMemory(
          fmt::format("the buffers of {}: {}. {}", unit_text(unit), describe(error), memory_advice(plan_, Lacking::buffers)));
    }
  }
  run_together(plan_.world(), [&] {  // values that a script gives may be wrong
    for (const Unit& unit : state_.units)
      initialise_unit(*plan_.program().model(), *state_.model, unit, state_.links->place().coord, precision.master());
  });
  state_.parameters = leaves_of(*state_.model, state_.units);
  for (const int unit : units_summed_apart(program))
    state_.units[unit].grad_sum = make({}, state_.units[unit].layout.chunk, precision.grads);
  if (const int64_t elements = wire_elements(program, state_.units); elements > 0)
    state_.wire = make({plan_.data_axes()}, elements, precision.reduce);
}

// The buffers of the layers that this rank runs.
void Allocation::buffers() {
  const ModelInfo& model = *state_.model;
  const std::vector<bool> runs = positions_run(plan_.main(), model);
  for (const BufferInfo& buffer : model.buffers) {
    at::Tensor& values = state_.buffers.emplace_back();
    for (size_t p = 0; p < runs.size(); ++p) {
      if (runs[p] && model.positions[p].layer == buffer.layer && !values.defined())
        values = buffer.initial.to(state_.links->device(), buffer.initial.scalar_type(), false, /*copy=*/true).contiguous();
    }
  }
}

}  // namespace

void allocate_state(const Plan& plan, StepState& state) {
  Allocation allocation(plan, state);
  allocation.units();
  allocation.buffers();
}

}  // namespace zt
