#include "flows.h"

#include <algorithm>

namespace zt::pipe {

int Flow::place_of(int stage) const {
  const auto found = std::ranges::find(stages, stage);
  return found == stages.end() ? -1 : static_cast<int>(found - stages.begin());
}

Flows::Flows(const ModelInfo& model, const Partition& partition)
    : stage_of_(model.positions.size()),
      sources_(model.positions.size()),
      readers_(model.positions.size()),
      flows_(model.positions.size()) {
  for (size_t stage = 0; stage + 1 < partition.size(); ++stage) {
    for (int p = partition[stage]; p < partition[stage + 1]; ++p) stage_of_[static_cast<size_t>(p)] = static_cast<int>(stage);
  }
  for (int reader = 0; reader < static_cast<int>(model.positions.size()); ++reader) {
    auto& sources = sources_[static_cast<size_t>(reader)];
    for (const zt::Edge& edge : model.positions[static_cast<size_t>(reader)].inputs) {
      if (std::ranges::find(sources, edge.position) == sources.end()) sources.push_back(edge.position);
    }
    for (const int source : sources) readers_[static_cast<size_t>(source)].push_back(reader);
  }
  for (int source = 0; source < static_cast<int>(flows_.size()); ++source) {
    Flow flow{.stages = {stage_of(source)}, .first_readers = {}};
    for (const int reader : readers(source)) {  // ascending
      if (stage_of(reader) == flow.stages.back()) continue;
      flow.stages.push_back(stage_of(reader));
      flow.first_readers.push_back(reader);
    }
    if (flow.stages.size() < 2) continue;
    flow.is_differentiable = std::ranges::any_of(model.positions[static_cast<size_t>(source)].outputs,
                                                 [](const auto& output) { return output.differentiable; });
    flows_[static_cast<size_t>(source)] = std::move(flow);
  }
}

}  // namespace zt::pipe
