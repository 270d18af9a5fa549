// The layers that a rank of a pipeline runs, in order.
#pragma once

#include <vector>

#include "lowering.h"

namespace zt::pipe {

// One layer of a rank's list.
struct LayerRun {
  KindId kind;
  int position, micro_batch, stage;
  int step;  // of the schedule
};

inline bool is_backward(const LayerRun& layer) {
  return layer.kind == Kinds::get().backward || layer.kind == Kinds::get().input_grad;
}

class RankLayers {
 public:
  RankLayers(const PipelineSchedule& schedule, const Cut& cut);

  std::vector<LayerRun> of(int rank) const;

 private:
  std::vector<LayerRun> of_task(const Task& task, int step) const;
  bool is_split(int position, int stage) const;
  bool is_exchange(const LayerRun& layer) const;
  bool exchanges(const std::vector<LayerRun>& layers) const;

  const PipelineSchedule& schedule_;
  const Cut& cut_;
  std::vector<bool> has_inputs_in_order_;  // by stage
};

}  // namespace zt::pipe
