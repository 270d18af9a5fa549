// Allocates what a rank's Store holds.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "execute/counts.h"
#include "owned_data.h"
#include "store.h"
#include "train/memory_check.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

at::Tensor make_buffer(const StepState& state, const AxesList& movers, int64_t numel, at::ScalarType dtype) {
  std::vector<Communicator*> comms;
  for (const auto& axes : movers) {
    if (axes.empty()) continue;
    Communicator& comm = state.links->comm(axes);
    if (comm.device()) comms.push_back(&comm);
  }
  if (comms.empty()) return large_zeros({numel}, at::device(state.links->device()).dtype(dtype));
  return comms.front()->allocate({numel}, dtype, {comms.begin() + 1, comms.end()});
}

namespace {

// Makes buffers and notes them.
struct Maker {
  at::Tensor make(const AxesList& movers, int64_t numel, at::ScalarType dtype) const {
    const at::Tensor buffer = make_buffer(state, movers, numel, dtype);
    made.push_back({buffer, movers});
    return buffer;
  }

  const StepState& state;
  std::vector<MadeBuffer>& made;
};

// One buffer per slot. The units of a slot usually move along the same axes; the first unit's decide.
std::vector<at::Tensor> make_slots(const Maker& maker, const Slots& slots, at::ScalarType dtype) {
  std::vector<at::Tensor> buffers;
  for (size_t slot = 0; slot < slots.sizes.size(); ++slot) {
    const auto first = std::ranges::find(slots.of_unit, static_cast<int>(slot)) - slots.of_unit.begin();
    buffers.push_back(maker.make({maker.state.units[static_cast<size_t>(first)].plan.comm_axes()}, slots.sizes[slot], dtype));
  }
  return buffers;
}

// "unit 4, 'blocks.3.mlp.up.weight' [4096, 1024] and 5 more parameters"
std::string unit_text(const Unit& unit, const ModelInfo& model) {
  const std::vector<int>& params = model.units[unit.index].params;
  const ParamInfo& first = model.params[params.front()];
  std::string text = fmt::format("unit {}, '{}' [{}]", unit.index, first.name, fmt::join(first.shape, ", "));
  if (params.size() > 1) text += fmt::format(" and {} more parameters", params.size() - 1);
  return text;
}

// Memory that is cut into places, by the attribute `slot`.
struct Arena {
  at::Tensor bytes;  // undefined if there are no places
  std::vector<at::Tensor> places;
};
Arena make_arena(const std::vector<int64_t>& sizes, const std::function<at::Tensor(int64_t bytes)>& allocate) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  Arena arena;
  if (total > 0) arena.bytes = allocate(total);
  int64_t begin = 0;
  for (const int64_t bytes : sizes) {
    arena.places.push_back(total > 0 ? arena.bytes.narrow(0, begin, bytes) : allocate(0));
    begin += bytes;
  }
  return arena;
}

// Makes the memories for data that lie elsewhere, and the places in memory to which they come.
void make_homes(const Plan& plan, StepState& state) {
  const RankUnits& held = plan.rank_units();
  const at::Device device = state.links->device();
  Arena arena = make_arena(held.places, [&](int64_t bytes) { return aligned_bytes(bytes, device); });
  Arena of_host = make_arena(held.host_places, [&](int64_t bytes) { return pinned_bytes(bytes, device); });
  state.elsewhere.slots = std::move(arena.places);
  state.elsewhere.host_slots = std::move(of_host.places);
  state.elsewhere.map = held.homes;
  run_together(plan.world(), [&] {
    for (const auto& pass : plan.program().passes()) {
      const auto& [places, memory] = of_host.bytes.defined() ? std::tie(state.elsewhere.host_slots, of_host.bytes)
                                                             : std::tie(state.elsewhere.slots, arena.bytes);
      auto homes = pass->make_homes({held.homes.host, held.homes.files, places, memory, plan.world(), device});
      if (!homes) continue;
      if (state.elsewhere.homes)
        misuse("two passes move data to other memories, and the second one is {}: apply one", pass->name());
      state.elsewhere.homes = std::move(homes);
    }
    const auto& actions = plan.main().actions;
    const auto evicts_to_host = [](const Action& action) {
      return action.kind == Kinds::get().evict_value && action.attr("home") == word_of(Tier::host);
    };
    if (const auto found = std::ranges::find_if(actions, evicts_to_host); device.is_cpu() && found != actions.end())
      misuse("action {} ({}) takes data to host memory, but this rank computes on the CPU, whose memory that is: give home=file",
             found - actions.begin(), action_text(*found));
    if (state.elsewhere.homes) return;
    if (held.homes.host + held.homes.files > 0)
      misuse("data of the program lie elsewhere (state_home, params_home), but no pass has a place for it: apply offload.move");
    if (const auto moves = std::ranges::find(actions, Kinds::get().evict_value, &Action::kind); moves != actions.end())
      misuse("action {} ({}) takes data out of memory, but no pass has a place for them: apply offload.move with activations",
             moves - actions.begin(), action_text(*moves));
  });
}

// Gives the parameters of the unit their initial values, unless they are packed, slice by slice where they lie elsewhere.
void initialise_unit(const Plan& plan, const Unit& unit, const StepState& state) {
  if (!unit.plan.held || plan.model().units[unit.index].is_packed) return;
  const at::ScalarType exact = plan.main().precision.master();
  const auto fill = [&](const Slice& slice, const at::Tensor& to) {
    initialise_slice(*plan.program().model(), *state.model, unit, state.links->place().coord, slice, to, exact);
  };
  if (unit.master.defined()) fill({0, unit.layout.chunk}, unit.master);
  const at::ScalarType type = unit.has_own_master ? exact : plan.main().precision.params;
  for (int part = 0; !unit.master.defined() && part < unit.plan.slices; ++part) {
    const Slice slice = slice_of(unit.layout.chunk, part, unit.plan.slices);
    const at::Tensor values = at::zeros({slice.count}, unit.full.options().dtype(type));
    fill(slice, values);
    owned_data::write(state, unit, "master", slice.first, values);
  }
  owned_data::round_master(state, unit);
}

// Programs of all modes use the same buffers, so parameters never move.
void allocate_units(const Plan& plan, const Maker& maker, StepState& state) {
  const std::vector<std::string> state_names = plan.state_names();
  const RankProgram& program = plan.main();
  const Precision& precision = program.precision;
  const SharedSlots& slots = plan.rank_units().slots;
  const Slots &of_params = slots.of(resource::param), &of_grads = slots.of(resource::grad);
  const auto parameters = make_slots(maker, of_params, precision.params),
             gradients = make_slots(maker, of_grads, precision.grads);
  const auto buffer = [](const std::vector<at::Tensor>& buffers, int slot) { return slot < 0 ? at::Tensor() : buffers[slot]; };
  const AllocateFn allocate = [&](const auto& movers, int64_t numel, at::ScalarType dtype) {
    return maker.make(movers, numel, dtype);
  };
  std::vector<at::Tensor> staging;
  for (const int64_t elements : slots.of(resource::staging).sizes)
    staging.push_back(maker.make({}, elements, precision.master()));
  for (Unit& unit : state.units) {
    unit.staging = buffer(staging, slots.of(resource::staging).of_unit[unit.index]);
    const SharedBuffers shared{buffer(parameters, of_params.of_unit[unit.index]),
                               buffer(gradients, of_grads.of_unit[unit.index])};
    if (unit.plan.held && unit.is_node_shared())
      unit.full = state.links->comm(unit.plan.shard_axes)
                      .allocate_shared({unit.layout.padded()}, state.model->units[unit.index].element_type(precision.params));
    try {
      allocate_unit(unit, state.model->units[unit.index], precision, state_names, allocate, shared);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      throw OutOfMemory(fmt::format("the buffers of {}: {}. {}", unit_text(unit, plan.model()), describe(error),
                                    memory_advice(plan, Lacking::buffers)));
    }
  }
  make_homes(plan, state);
  run_together(plan.world(), [&] {  // values that a script gives may be wrong
    for (const Unit& unit : state.units) initialise_unit(plan, unit, state);
  });
  state.parameters = leaves_of(*state.model, state.units, state.links->place().coord, precision.params);
  for (const int unit : units_summed_apart(program))
    state.units[unit].grad_sum = maker.make({}, state.units[unit].layout.chunk, precision.grads);
  if (const int64_t elements = wire_elements(program, state.units); elements > 0)
    state.wire = maker.make(wire_axes(program), elements, precision.reduce);
}

// The buffers of the layers that this rank runs.
void copy_buffers(const Plan& plan, StepState& state) {
  const ModelInfo& model = *state.model;
  const std::vector<bool> runs = positions_run(plan.main(), model);
  for (const BufferInfo& buffer : model.buffers) {
    at::Tensor& values = state.buffers.emplace_back();
    for (size_t p = 0; p < runs.size(); ++p) {
      if (runs[p] && model.positions[p].layer == buffer.layer && !values.defined())
        values = buffer.initial.to(state.links->device(), buffer.initial.scalar_type(), false, /*copy=*/true).contiguous();
    }
  }
}

void allocate_pass_buffers(const Plan& plan, const Maker& maker, StepState& state) {
  for (const PassBuffer& buffer : plan.main().buffers) {
    const bool is_sharded = buffer.residence == BufferResidence::sharded;
    const int64_t elements = elements_of(buffer, is_sharded ? state.units[buffer.index].layout.chunk : 0);
    const at::Tensor values = maker.make({}, elements, buffer.dtype);
    state.pass_buffers.push_back({buffer, is_sharded ? values : values.view(buffer.shape)});
  }
}

}  // namespace

std::vector<MadeBuffer> allocate_state(const Plan& plan, StepState& state) {
  std::vector<MadeBuffer> made;
  const Maker maker{state, made};
  allocate_units(plan, maker, state);
  copy_buffers(plan, state);
  allocate_pass_buffers(plan, maker, state);
  return made;
}

}  // namespace zt
