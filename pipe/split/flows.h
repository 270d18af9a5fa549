// The values that cross from one stage to others.
#pragma once

#include <optional>
#include <vector>

#include "partition.h"

namespace zt::pipe {

// The outputs of one position. A gradient flows back only from the stages that read a differentiable one of them: a stage may
// read a mask alone.
struct Flow {
  std::vector<int> stages;         // the stage that computes the outputs, then the other ones that read any, ascending
  std::vector<int> grad_stages;    // the stage that computes them, then the other ones that read a differentiable one, ascending
  std::vector<int> first_readers;  // by stage of grad_stages, from the second on: its first position that reads one of these

  // Returns the place of a stage in `grad_stages`; -1: it is not there.
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
  // Returns the positions whose outputs a position reads, each once, and those of which it reads a differentiable output.
  const std::vector<int>& sources(int position) const { return sources_[static_cast<size_t>(position)]; }
  const std::vector<int>& grad_sources(int position) const { return grad_sources_[static_cast<size_t>(position)]; }
  const std::vector<int>& readers(int position) const { return readers_[static_cast<size_t>(position)]; }

 private:
  std::vector<int> stage_of_;  // by position, as all others
  std::vector<std::vector<int>> sources_, grad_sources_, readers_;
  std::vector<std::optional<Flow>> flows_;
};

}  // namespace zt::pipe
