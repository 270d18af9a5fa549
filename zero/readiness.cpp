#include "readiness.h"

#include <algorithm>
#include <tuple>

#include "zt/base/error.h"

namespace zt::zero {

namespace {

// Calls visit(unit, index) for each write of `resource` to one of `units`, in order.
template <class Visit>
void for_each_write(const std::vector<Action>& actions, const ModelInfo& model, ResourceId resource,
                    const std::vector<bool>& units, Visit visit) {
  for (int index = 0; index < static_cast<int>(actions.size()); ++index) {
    for (const Resource& write : resources_of(actions[index], model).writes) {
      if (write.type == resource && units.at(write.index)) visit(write.index, index);
    }
  }
}

void sort(std::vector<ReadyUnit>& ready) {
  std::ranges::sort(ready, {}, [](const ReadyUnit& each) { return std::tie(each.after, each.unit); });
}

// As gradients_by_micro_batch, for units of which each parameter has one use.
std::vector<ReadyUnit> micro_batch_gradients(const std::vector<Action>& actions, const ModelInfo& model,
                                             const std::vector<bool>& units) {
  // Consecutive writes of one micro-batch. An action without a micro-batch belongs to the run before it.
  struct Run {
    int micro_batch, last;
  };
  std::vector<std::vector<Run>> runs(units.size());
  for_each_write(actions, model, resource::grad, units, [&](int unit, int index) {
    const int micro_batch = actions[index].micro_batch;
    auto& unit_runs = runs[unit];
    if (!unit_runs.empty() && (micro_batch < 0 || micro_batch == unit_runs.back().micro_batch)) {
      unit_runs.back().last = index;
      return;
    }
    if (std::any_of(unit_runs.begin(), unit_runs.end(), [&](const Run& run) { return run.micro_batch == micro_batch; })) {
      misuse(
          "zero.shard: reduce_every = \"micro_batch\" needs one micro-batch's gradient of unit '{}' to be complete before the "
          "next begins, and action {} ({}) comes later: give reduce_every = \"step\"",
          model.units[unit].name, index, action_text(actions[index]));
    }
    unit_runs.push_back({micro_batch, index});
  });
  std::vector<ReadyUnit> ready;
  for (size_t unit = 0; unit < runs.size(); ++unit) {
    const auto& unit_runs = runs[unit];
    for (size_t i = 0; i < unit_runs.size(); ++i) {
      const GradientPart part = unit_runs.size() == 1       ? GradientPart::whole
                                : i == 0                    ? GradientPart::first
                                : i + 1 == unit_runs.size() ? GradientPart::last
                                                            : GradientPart::middle;
      ready.push_back({static_cast<int>(unit), unit_runs[i].last, part, static_cast<int>(i)});
    }
  }
  sort(ready);
  return ready;
}

}  // namespace

std::vector<ReadyUnit> last_writes(const std::vector<Action>& actions, const ModelInfo& model, ResourceId resource,
                                   const std::vector<bool>& units) {
  std::vector<int> last(units.size(), -1);
  for_each_write(actions, model, resource, units, [&](int unit, int index) { last[unit] = index; });
  std::vector<ReadyUnit> ready;
  for (size_t unit = 0; unit < last.size(); ++unit) {
    if (last[unit] >= 0) ready.push_back({static_cast<int>(unit), last[unit]});
  }
  sort(ready);
  return ready;
}

std::vector<ReadyUnit> gradients_by_micro_batch(const std::vector<Action>& actions, const ModelInfo& model,
                                                const std::vector<bool>& units) {
  std::vector<bool> tied = units, untied = units;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    const bool has_uses =
        std::ranges::any_of(model.units[unit].params, [&](int param) { return model.params[param].positions.size() > 1; });
    (has_uses ? untied : tied)[unit] = false;
  }
  auto ready = micro_batch_gradients(actions, model, untied);
  const auto once = last_writes(actions, model, resource::grad, tied);
  ready.insert(ready.end(), once.begin(), once.end());
  sort(ready);
  return ready;
}

}  // namespace zt::zero
