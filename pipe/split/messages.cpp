#include "messages.h"

#include <algorithm>
#include <set>

namespace zt::pipe {

bool LayerMessages::is_read_by(int rank, int position) const {
  return std::ranges::any_of(flows_.readers(position), [&](int reader) { return owner_of(reader) == rank; });
}

std::vector<std::pair<ChannelKey, Parcel>> LayerMessages::sent_after(const LayerRun& layer, int rank) const {
  std::vector<std::pair<ChannelKey, Parcel>> sent;
  const Flow* flow = flows_.of(layer.position);
  if (layer.kind == Kinds::get().forward && flow) {
    std::set<int> known{rank};
    for (const int stage : flow->stages) {
      if (known.insert(rank_of(stage)).second)
        sent.push_back({{rank, rank_of(stage), Direction::forward}, {layer.position, layer.micro_batch, 0}});
    }
  }
  if (!is_backward(layer)) return sent;
  for (const int source : flows_.grad_sources(layer.position)) {
    const Flow* of_source = flows_.of(source);
    const int place = of_source ? of_source->place_of(layer.stage) : -1;
    if (place < 1) continue;
    const int to = rank_of(of_source->grad_stages[static_cast<size_t>(place) - 1]);
    const bool is_last_part = of_source->first_readers[static_cast<size_t>(place) - 1] == layer.position;
    if (to != rank && is_last_part) sent.push_back({{rank, to, Direction::backward}, {source, layer.micro_batch, layer.stage}});
  }
  return sent;
}

std::vector<std::pair<ChannelKey, Parcel>> LayerMessages::needed_before(const LayerRun& layer, int rank) const {
  std::vector<std::pair<ChannelKey, Parcel>> needed;
  if (layer.kind == Kinds::get().forward) {
    for (const int source : flows_.sources(layer.position)) {
      if (owner_of(source) != rank)
        needed.push_back({{owner_of(source), rank, Direction::forward}, {source, layer.micro_batch, 0}});
    }
  }
  if (!is_backward(layer)) return needed;
  const auto need_gradient = [&](int source) {
    const Flow* flow = flows_.of(source);
    const int place = flow ? flow->place_of(layer.stage) : -1;
    if (place < 0 || place + 1 == static_cast<int>(flow->grad_stages.size())) return;
    const int next = flow->grad_stages[static_cast<size_t>(place) + 1];
    if (rank_of(next) != rank) needed.push_back({{rank_of(next), rank, Direction::backward}, {source, layer.micro_batch, next}});
  };
  for (const int source : flows_.grad_sources(layer.position)) need_gradient(source);
  need_gradient(layer.position);
  return needed;
}

}  // namespace zt::pipe
