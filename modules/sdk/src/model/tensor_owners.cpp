#include "tensor_owners.h"

#include <algorithm>
#include <map>

#include "model/build/unit_build.h"

namespace zt {

namespace {

struct Unowned {
  double work;
  int* owner;  // in Unit::owners
};

// The ranks over which a unit's values or gradients are spread, and those that hold other boxes of its parameters.
std::vector<std::string> owner_axes_of(const Unit& unit, const ParamInfo& param) {
  std::vector<std::string> axes = unit.plan.comm_axes();
  for (const std::string& axis : param.cut_axes()) {
    if (std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
  }
  return axes;
}

void give_out(std::vector<Unowned>& tensors, int ranks) {
  std::ranges::stable_sort(tensors, [](const Unowned& a, const Unowned& b) { return a.work > b.work; });
  std::vector<double> loads(static_cast<size_t>(ranks), 0);
  for (const Unowned& tensor : tensors) {
    const auto least = std::ranges::min_element(loads);
    *least += tensor.work;
    *tensor.owner = static_cast<int>(least - loads.begin());
  }
}

// Returns what this rank updates of the parameter.
UpdatedPart part_of(int index, const ParamInfo& param, const OwnedRun& run, const Optimizer& optimizer, bool is_whole) {
  UpdatedPart part{index, is_whole, optimizer.states_of(param)};
  if (is_whole) return part;
  for (StateInfo& state : part.states) state.shape = {run.count};
  return part;
}

}  // namespace

bool needs_tensors(const ModelInfo& model, const Optimizer& optimizer) {
  return std::ranges::any_of(model.params, [&](const ParamInfo& param) {
    return param.trainable && optimizer.group_of(param) >= 0 && optimizer.scope(param) == Scope::tensor;
  });
}

void assign_owners(const ModelInfo& model, const Optimizer& optimizer, const Coord& coord, std::vector<Unit>& units) {
  if (!needs_tensors(model, optimizer)) return;
  std::map<std::vector<std::string>, std::vector<Unowned>> by_axes;
  for (Unit& unit : units) {
    const std::vector<int>& params = model.units[unit.index].params;
    if (!unit.plan.held || !model.units[unit.index].trainable) continue;
    const std::vector<std::string> axes = owner_axes_of(unit, model.params[params.front()]);
    unit.owners.assign(params.size(), -1);
    for (size_t place = 0; place < params.size(); ++place) {
      const ParamInfo& param = model.params[params[place]];
      if (!param.trainable || optimizer.group_of(param) < 0 || optimizer.scope(param) != Scope::tensor) continue;
      by_axes[axes].push_back({optimizer.work_of(param), &unit.owners[place]});
      unit.owner_axes = axes;
    }
    const bool is_cut = !model.params[params.front()].cut_axes().empty();
    unit.gathers_tensors = (unit.layout.ranks > 1 || is_cut) && coord.size(unit.owner_axes) > 1;
  }
  for (auto& [axes, tensors] : by_axes) give_out(tensors, coord.size(axes));
  for (Unit& unit : units) {
    for (size_t place = 0; place < unit.owners.size(); ++place) {
      const int index = model.units[unit.index].params[place];
      const ParamInfo& param = model.params[index];
      if (!param.trainable || optimizer.group_of(param) < 0) continue;
      const bool is_whole = unit.owners[place] >= 0;
      const OwnedRun run = owned_run(param, unit, coord);
      const bool is_mine = is_whole ? unit.owners[place] == coord.index(unit.owner_axes) : run.count > 0;
      if (is_mine) unit.parts.push_back(part_of(index, param, run, optimizer, is_whole));
    }
  }
}

}  // namespace zt
