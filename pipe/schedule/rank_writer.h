// Writes the list of one rank, and counts its micro-batches.
#pragma once

#include <deque>
#include <vector>

#include "recipes.h"

namespace zt::pipe {

// Each call adds a task of the next micro-batch of its stage, or nothing if all are done. So a recipe may ask for more than there
// are.
class RankWriter {
 public:
  RankWriter(PipelineSchedule& schedule, int rank);

  void forward(int stage) { add({take(TaskKind::forward, stage)}); }
  void backward(int stage) { add({take(TaskKind::backward, stage)}); }
  // Adds I, and remembers its W.
  void input_grad(int stage);
  // Adds the oldest W that is left, or the oldest of one stage.
  void weight_grad();
  void weight_grad(int stage);
  void all_weight_grads();
  // Adds a forward and a backward of two stages as one overlapped step.
  void overlapped(int forward_stage, int backward_stage);

  // Returns the number of the stage's forwards so far.
  int forwards(int stage) const { return forwards_[static_cast<size_t>(stage)]; }

 private:
  std::optional<Task> take(TaskKind kind, int stage);
  void add(const std::optional<Task>& task);

  PipelineSchedule& schedule_;
  std::vector<PipelineStep>& steps_;
  std::vector<int> forwards_, backwards_;  // by stage: next micro-batch
  std::deque<Task> weights_;               // left by I, the oldest first
};

// Returns a schedule of this shape whose lists write(writer, rank) has written.
template <class Write>
PipelineSchedule write_ranks(StagePlacement placement, const Shape& shape, const Write& write) {
  PipelineSchedule schedule = empty_schedule(placement, shape.ranks, shape.chunks, shape.micro_batches);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    RankWriter writer(schedule, rank);
    write(writer, rank);
  }
  return schedule;
}

}  // namespace zt::pipe
