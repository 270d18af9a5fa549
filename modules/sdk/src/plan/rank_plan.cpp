#include "rank_plan.h"

#include <algorithm>

#include "model/unit_build.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

int64_t ranks_of(const Action& action, const Coord& coord) {
  int64_t ranks = 1;
  for (const auto& axis : action.axes()) ranks *= coord.size(axis);
  return ranks;
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
  held.slots.by_type = {{resource::param, parameter_slots(programs, model, held.units)},
                        {resource::grad, gradient_slots(training, model, held.units)}};
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
  const RankBasis basis{model, training, held, optimizer};
  for (const ResourceId type : resource_ids()) {
    if (const BytesOf* bytes = bytes_of(type)) plan.held.emplace_back(type_of(type).memory, (*bytes)(basis));
  }
  plan.held.emplace_back("buckets", wire_elements(training, held.units) * size_of(precision.reduce));
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
