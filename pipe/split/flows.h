// The values that cross from one stage to others.
#pragma once

#include <optional>
#include <vector>

#include "partition.h"

namespace zt::pipe {

struct Flow {
  std::vector<int> stages;         // the stage that computes the value, then the other ones that read it, ascending
  std::vector<int> first_readers;  // by stage of this list, from the second on: its first position that reads the value
  bool is_differentiable = false;

  // Returns the place of a stage in `stages`; -1: it is not there.
  int place_of(int stage) const;
};

class Flows {
 public:
  Flows(const ModelInfo& model, const Partition& partition);

  int stage_of(int position) const { return stage_of_[static_cast<size_t>(position)]; }
  // Returns the flow of a position's outputs; null if no other stage reads them.
  const Flow* of(int position) const {
    const auto& flow = flows_[static_cast<size_t>(position)];
    return flow ? &*flow : nullptr;
  }
  // Returns the positions whose outputs a position reads, each once.
  const std::vector<int>& sources(int position) const { return sources_[static_cast<size_t>(position)]; }
  const std::vector<int>& readers(int position) const { return readers_[static_cast<size_t>(position)]; }

 private:
  std::vector<int> stage_of_;  // by position, as all others
  std::vector<std::vector<int>> sources_, readers_;
  std::vector<std::optional<Flow>> flows_;
};

}  // namespace zt::pipe
