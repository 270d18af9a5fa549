#include "rank_plan.h"

#include <algorithm>

#include "model/unit_build.h"

namespace zt {

namespace {

int64_t size_of(at::ScalarType type) {
  return static_cast<int64_t>(c10::elementSize(type));
}

int64_t ranks_of(const Action& action, const Coord& coord) {
  int64_t ranks = 1;
  for (const auto& axis : action.axes()) ranks *= coord.size(axis);
  return ranks;
}

int64_t parameter_elements(const RankUnits& held) {
  int64_t elements = held.slots.parameters.total();
  for (const Unit& unit : held.units) {
    if (!unit.plan.held) continue;
    const bool is_whole = held.slots.parameters.of_unit[unit.index] < 0 && !unit.is_node_shared();
    elements += is_whole ? unit.layout.padded() : unit.layout.chunk;  // of one copy a node each rank counts its part
  }
  return elements;
}

int64_t gradient_elements(const ModelInfo& model, const Program& training, const RankUnits& held) {
  int64_t elements = held.slots.gradients.total();
  for (const Unit& unit : held.units) {
    if (!model.units[unit.index].trainable || !unit.plan.held) continue;
    elements += held.slots.gradients.of_unit[unit.index] < 0 ? unit.layout.padded() : unit.layout.chunk;
  }
  const std::vector<bool> runs = positions_run(training, model);
  for (const ParamInfo& param : model.params) {
    const auto uses = std::ranges::count_if(param.positions, [&](int position) { return runs[position]; });
    if (param.trainable && uses > 1) elements += (uses - 1) * param.numel;
  }
  for (const int unit : units_summed_apart(training)) elements += held.units[unit].layout.chunk;
  return elements;
}

}  // namespace

std::set<int> units_summed_apart(const Program& training) {
  std::set<int> units;
  for (const Action& action : training.actions) {
    if (action.kind != Kinds::get().reduce_grad || action.gradient_part() == GradientPart::whole) continue;
    for (const int unit : action.units()) {
      if (training.units[unit].grads != Residence::sharded) units.insert(unit);
    }
  }
  return units;
}

RankUnits describe_units(const ModelInfo& model, std::span<const Program* const> programs, const Coord& coord) {
  const Program& training = *programs.front();
  RankUnits held;
  for (size_t u = 0; u < model.units.size(); ++u)
    held.units.push_back(describe_unit(model, static_cast<int>(u), training.units[u], coord));
  held.slots = {parameter_slots(programs, model, held.units), gradient_slots(training, model, held.units)};
  return held;
}

RankPlan plan_rank(const ModelInfo& model, const Program& training, const RankUnits& held, const Optimizer& optimizer,
                   const Coord& coord) {
  const Precision& precision = training.precision;
  RankPlan plan;
  for (const Action& action : training.actions) {
    const std::string& name = kind(action.kind).name;
    ++plan.actions[name];
    const CostBasis basis{.model = model, .program = training, .units = held.units, .ranks = ranks_of(action, coord)};
    if (const int64_t bytes = cost_of(action, basis).sent_bytes; bytes > 0) plan.sent[name] += bytes;
  }
  int64_t updated = 0;
  for (const Unit& unit : held.units) {
    if (model.units[unit.index].trainable) updated += unit.layout.chunk;
  }
  const int64_t exact = updated * size_of(precision.master());
  plan.held = {{"parameters", parameter_elements(held) * size_of(precision.params)},
               {"master", precision.is_mixed() ? exact : 0},
               {"gradients", gradient_elements(model, training, held) * size_of(precision.grads)},
               {"optimizer", exact * static_cast<int64_t>(optimizer.state_names().size())},
               {"buckets", wire_elements(training, held.units) * size_of(precision.reduce)}};
  return plan;
}

int64_t wire_elements(const Program& training, const std::vector<Unit>& units) {
  int64_t longest = 0;
  for (const Action& action : training.actions) {
    if (action.kind != Kinds::get().reduce_grad || !action.attrs.contains("dtype")) continue;
    int64_t elements = 0;
    for (const int unit : action.units()) elements += units[unit].layout.padded();
    longest = std::max(longest, elements);
  }
  return longest;
}

}  // namespace zt
