#include "readiness.h"

#include <algorithm>
#include <tuple>

#include "zt/base/error.h"

namespace zt::zero {

namespace {

// Calls visit(unit, index) for each write of `resource` to one of `units`, in order.
template <class Visit>
void for_each_write(const std::vector<Action>& actions, const ModelInfo& model, ResourceKind resource,
                    const std::vector<bool>& units, Visit visit) {
  for (int index = 0; index < static_cast<int>(actions.size()); ++index) {
    for (const Resource& write : kind(actions[index].kind).resources(actions[index], model).writes) {
      if (write.kind == resource && units.at(write.index)) visit(write.index, index);
    }
  }
}

void sort(std::vector<Ready>& ready) {
  std::sort(ready.begin(), ready.end(),
            [](const Ready& a, const Ready& b) { return std::tie(a.after, a.unit) < std::tie(b.after, b.unit); });
}

}  // namespace

std::vector<Ready> last_writes(const std::vector<Action>& actions, const ModelInfo& model, ResourceKind resource,
                               const std::vector<bool>& units) {
  std::vector<int> last(units.size(), -1);
  for_each_write(actions, model, resource, units, [&](int unit, int index) { last[unit] = index; });
  std::vector<Ready> ready;
  for (size_t unit = 0; unit < last.size(); ++unit) {
    if (last[unit] >= 0) ready.push_back({static_cast<int>(unit), last[unit]});
  }
  sort(ready);
  return ready;
}

std::vector<Ready> micro_batch_gradients(const std::vector<Action>& actions, const ModelInfo& model,
                                         const std::vector<bool>& units) {
  // A run of writes by one micro-batch; an action without one belongs to the run it follows.
  struct Run {
    int micro_batch, last;
  };
  std::vector<std::vector<Run>> runs(units.size());
  for_each_write(actions, model, ResourceKind::grad, units, [&](int unit, int index) {
    const int micro_batch = actions[index].micro_batch;
    auto& mine = runs[unit];
    if (!mine.empty() && (micro_batch < 0 || micro_batch == mine.back().micro_batch)) {
      mine.back().last = index;
      return;
    }
    if (std::any_of(mine.begin(), mine.end(), [&](const Run& run) { return run.micro_batch == micro_batch; })) {
      misuse(
          "zero.shard: reduce_every = \"micro_batch\" needs one micro-batch's gradient of unit '{}' to be complete before the "
          "next begins, and action {} ({}) comes later: give reduce_every = \"step\"",
          model.units[unit].name, index, action_text(actions[index]));
    }
    mine.push_back({micro_batch, index});
  });
  std::vector<Ready> ready;
  for (size_t unit = 0; unit < runs.size(); ++unit) {
    const auto& mine = runs[unit];
    for (size_t i = 0; i < mine.size(); ++i) {
      const GradientPart part = mine.size() == 1       ? GradientPart::whole
                                : i == 0               ? GradientPart::first
                                : i + 1 == mine.size() ? GradientPart::last
                                                       : GradientPart::middle;
      ready.push_back({static_cast<int>(unit), mine[i].last, part, static_cast<int>(i)});
    }
  }
  sort(ready);
  return ready;
}

}  // namespace zt::zero
