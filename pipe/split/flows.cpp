#include "flows.h"

#include <algorithm>

namespace zt::pipe {

namespace {

void add_once(std::vector<int>& list, int entry) {
  if (std::ranges::find(list, entry) == list.end()) list.push_back(entry);
}

}  // namespace

int Flow::place_of(int stage) const {
  const auto found = std::ranges::find(grad_stages, stage);
  return found == grad_stages.end() ? -1 : static_cast<int>(found - grad_stages.begin());
}

Flows::Flows(const ModelInfo& model, const Partition& partition)
    : stage_of_(model.positions.size()),
      sources_(model.positions.size()),
      grad_sources_(model.positions.size()),
      readers_(model.positions.size()),
      flows_(model.positions.size()) {
  for (size_t stage = 0; stage + 1 < partition.size(); ++stage) {
    for (int p = partition[stage]; p < partition[stage + 1]; ++p) stage_of_[static_cast<size_t>(p)] = static_cast<int>(stage);
  }
  for (int reader = 0; reader < static_cast<int>(model.positions.size()); ++reader) {
    for (const zt::Edge& edge : model.positions[static_cast<size_t>(reader)].inputs) {
      add_once(sources_[static_cast<size_t>(reader)], edge.position);
      const auto& outputs = model.positions[static_cast<size_t>(edge.position)].outputs;
      if (outputs[static_cast<size_t>(edge.output)].differentiable)
        add_once(grad_sources_[static_cast<size_t>(reader)], edge.position);
    }
    for (const int source : sources(reader)) readers_[static_cast<size_t>(source)].push_back(reader);
  }
  for (int source = 0; source < static_cast<int>(flows_.size()); ++source) {
    Flow flow{.stages = {stage_of(source)}, .grad_stages = {stage_of(source)}, .first_readers = {}};
    for (const int reader : readers(source)) {  // ascending
      if (stage_of(reader) != flow.stages.back()) flow.stages.push_back(stage_of(reader));
      const bool has_gradient = std::ranges::find(grad_sources(reader), source) != grad_sources(reader).end();
      if (!has_gradient || stage_of(reader) == flow.grad_stages.back()) continue;
      flow.grad_stages.push_back(stage_of(reader));
      flow.first_readers.push_back(reader);
    }
    if (flow.stages.size() >= 2) flows_[static_cast<size_t>(source)] = std::move(flow);
  }
}

}  // namespace zt::pipe
