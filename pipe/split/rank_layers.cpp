#include "rank_layers.h"

#include <algorithm>

#include "zt/program/micro_batch_pairs.h"
#include "zt/program/split_backward.h"

namespace zt::pipe {

namespace {

// Returns, by stage, whether its backwards for the inputs come in the order of micro-batches.
std::vector<bool> find_inputs_in_order(const PipelineSchedule& schedule) {
  std::vector<bool> in_order(static_cast<size_t>(schedule.stages()), true);
  std::vector<int> latest(in_order.size(), -1);
  for (const auto& steps : schedule.ranks) {
    for (const PipelineStep& step : steps) {
      for_each_task(step, [&](const Task& task) {
        if (task.kind == TaskKind::forward || task.kind == TaskKind::weight_grad) return;
        const auto stage = static_cast<size_t>(task.stage);
        if (task.micro_batch < latest[stage]) in_order[stage] = false;
        latest[stage] = task.micro_batch;
      });
    }
  }
  return in_order;
}

}  // namespace

RankLayers::RankLayers(const PipelineSchedule& schedule, const Cut& cut)
    : schedule_(schedule), cut_(cut), has_inputs_in_order_(find_inputs_in_order(schedule)) {}

std::vector<LayerRun> RankLayers::of(int rank) const {
  std::vector<LayerRun> layers;
  const auto& steps = schedule_.ranks[static_cast<size_t>(rank)];
  for (int index = 0; index < static_cast<int>(steps.size()); ++index) {
    const PipelineStep& step = steps[static_cast<size_t>(index)];
    const auto first = of_task(step.task, index);
    const auto second = step.beside ? of_task(*step.beside, index) : std::vector<LayerRun>();
    const auto merged =
        take_turns(first, second, [&, has_exchanges = exchanges(first) || exchanges(second)](const LayerRun& layer) {
          return !has_exchanges || is_exchange(layer);
        });
    layers.insert(layers.end(), merged.begin(), merged.end());
  }
  return layers;
}

// Returns the layers of a task: forwards in order of positions, backwards from the last one.
std::vector<LayerRun> RankLayers::of_task(const Task& task, int step) const {
  const Kinds& kinds = Kinds::get();
  std::vector<LayerRun> layers;
  const auto stage = static_cast<size_t>(task.stage);
  for (int p = cut_.partition[stage]; p < cut_.partition[stage + 1]; ++p) {
    const bool splits = is_split(p, task.stage);
    KindId kind = kinds.forward;
    if (task.kind == TaskKind::backward || (task.kind == TaskKind::input_grad && !splits)) kind = kinds.backward;
    else if (task.kind == TaskKind::input_grad) kind = kinds.input_grad;
    else if (task.kind == TaskKind::weight_grad) kind = kinds.weight_grad;
    if (task.kind == TaskKind::weight_grad && !splits) continue;
    layers.push_back({kind, p, task.micro_batch, task.stage, step});
  }
  if (task.kind != TaskKind::forward) std::ranges::reverse(layers);
  return layers;
}

// The gradients of a layer that runs all of its backward in I are summed in the order of the I's, so it is split if that is not
// the order of micro-batches.
bool RankLayers::is_split(int position, int stage) const {
  const PositionInfo& info = cut_.model.positions[static_cast<size_t>(position)];
  const bool has_weights =
      std::ranges::any_of(info.units, [&](int unit) { return cut_.model.units[static_cast<size_t>(unit)].trainable; });
  return can_split_backward(info, cut_.model) || (has_weights && !has_inputs_in_order_[static_cast<size_t>(stage)]);
}

// Whether the layer's tensors are under way after it, so that another task may compute.
bool RankLayers::is_exchange(const LayerRun& layer) const {
  return cut_.model.positions[static_cast<size_t>(layer.position)].exchanges && layer.kind != Kinds::get().weight_grad;
}
bool RankLayers::exchanges(const std::vector<LayerRun>& layers) const {
  return std::ranges::any_of(layers, [&](const LayerRun& layer) { return is_exchange(layer); });
}

}  // namespace zt::pipe
