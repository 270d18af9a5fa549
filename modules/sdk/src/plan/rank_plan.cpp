#include "rank_plan.h"

#include <algorithm>

#include "execute/update/tensor_exchange.h"
#include "model/build/unit_build.h"
#include "model/tensor_owners.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

std::set<int> units_summed_apart(const RankProgram& program) {
  std::set<int> units;
  for (const Action& action : program.actions) {
    if (action.kind != Kinds::get().reduce_grad || action.gradient_part() == GradientPart::whole) continue;
    for (const int unit : action.units()) {
      if (program.units[unit].grads != Residence::sharded) units.insert(unit);
    }
  }
  return units;
}

// Finds where the slices lie that are not always in memory, and how much room each place in memory needs for them.
static void place_slices(const ModelInfo& model, std::span<const RankProgram* const> programs, const Optimizer* optimizer,
                         RankUnits& held) {
  held.homes = map_homes(model, *programs.front(), held.units, optimizer ? optimizer->state_names() : std::vector<std::string>());
  for (const RankProgram* program : programs) {
    for (const Action& action : program->actions) {
      if (action.kind != Kinds::get().fetch && action.kind != Kinds::get().evict) continue;
      const auto place = static_cast<size_t>(action.number("slot", 0));
      const DataRecords& records = held.homes.of(action.unit_data(), action.target);
      if (action.is_in_host_memory() && records.home.tier == Tier::host) continue;  // it is used where it lies
      std::vector<int64_t>& places = action.is_in_host_memory() ? held.host_places : held.places;
      if (places.size() <= place) places.resize(place + 1);
      const bool is_whole = records.slices != action.number("parts", 1);
      places[place] =
          std::max(places[place], is_whole ? records.total() : records.bytes(static_cast<int>(action.number("part", 0))));
    }
  }
}

RankUnits describe_units(const ModelInfo& model, std::span<const RankProgram* const> programs, const Coord& coord,
                         const Optimizer* optimizer) {
  const RankProgram& main = *programs.front();
  RankUnits held;
  for (size_t u = 0; u < model.units.size(); ++u)
    held.units.push_back(describe_unit(model, static_cast<int>(u), main.units[u], coord));
  if (optimizer) assign_owners(model, *optimizer, coord, held.units);
  std::vector<int64_t> staged;
  for (const Unit& unit : held.units)
    staged.push_back(unit.gathers_tensors ? TensorExchange(model, unit, coord).staging_elements() : 0);
  held.slots.by_type = {{resource::param, parameter_slots(programs, model, held.units)},
                        {resource::grad, gradient_slots(main, model, held.units)},
                        {resource::staging, staging_slots(main, staged)}};
  place_slices(model, programs, optimizer, held);
  return held;
}

CostBasis cost_basis(const RankBasis& basis, const Coord& coord, const Action& action) {
  return {.model = basis.model,
          .program = basis.program,
          .units = basis.held.units,
          .ranks = coord.size(action.axes()),
          .optimizer_states = basis.optimizer_states};
}

// Adds the bytes to the line of this kind, or as a new line.
static void add_line(std::vector<std::pair<std::string, int64_t>>& lines, const std::string& kind, int64_t bytes) {
  const auto line = std::ranges::find(lines, kind, [](const auto& each) { return each.first; });
  if (line == lines.end()) lines.emplace_back(kind, bytes);
  else line->second += bytes;
}

RankPlan plan_rank(const RankBasis& basis, const Coord& coord) {
  const RankProgram& program = basis.program;
  const std::vector<Unit>& units = basis.held.units;
  RankPlan plan;
  for (const Action& action : program.actions) {
    const std::string& name = kind(action.kind).name;
    ++plan.actions[name];
    if (const int64_t bytes = cost_of(action, cost_basis(basis, coord, action)).sent_bytes; bytes > 0) {
      plan.sent[name] += bytes;
      plan.along[fmt::format("{}", fmt::join(action.axes(), "+"))] += bytes;
    }
  }
  for (const ResourceId type : resource_ids()) {
    if (const BytesOf* bytes = bytes_of(type)) add_line(plan.held, type_of(type).memory, (*bytes)(basis));
  }
  if (const int64_t bytes = basis.held.host_bytes(); bytes > 0) plan.elsewhere.emplace_back("host", bytes);
  if (basis.held.homes.files > 0) plan.elsewhere.emplace_back("files", basis.held.homes.files);
  if (const int64_t bytes = pass_buffer_bytes(program, units); bytes > 0) plan.held.emplace_back("buffers", bytes);
  plan.held.emplace_back("buckets", wire_elements(program, units) * size_of(program.precision.reduce));
  return plan;
}

int64_t pass_buffer_bytes(const RankProgram& program, const std::vector<Unit>& units) {
  int64_t bytes = 0;
  for (const PassBuffer& buffer : program.buffers)
    bytes += elements_of(buffer, buffer.residence == BufferResidence::sharded ? units[buffer.index].layout.chunk : 0) *
             size_of(buffer.dtype);
  return bytes;
}

static bool is_sent_in_other_dtype(const Action& action) {
  return action.kind == Kinds::get().reduce_grad && action.attrs.contains("dtype");
}

AxesList wire_axes(const RankProgram& program) {
  AxesList all;
  for (const Action& action : program.actions) {
    if (is_sent_in_other_dtype(action) && std::ranges::find(all, action.axes()) == all.end()) all.push_back(action.axes());
  }
  return all;
}

int64_t wire_elements(const RankProgram& program, const std::vector<Unit>& units) {
  int64_t longest = 0;
  for (const Action& action : program.actions) {
    if (!is_sent_in_other_dtype(action)) continue;
    int64_t elements = 0;
    for (const int unit : action.units()) elements += units[unit].layout.padded();
    longest = std::max(longest, elements);
  }
  return longest;
}

}  // namespace zt
