#include "recipes.h"

namespace zt::pipe {

namespace {

// Returns the rank's stage with the oldest micro-batch that is ready; -1: none is. next: by stage, the next micro-batch; before:
// the same at the begin of the round.
int choose_stage(const PipelineSchedule& schedule, int rank, const std::vector<int>& next, const std::vector<int>& before) {
  int best = -1;
  for (size_t s = 0; s < next.size(); ++s) {
    const bool is_ready = next[s] < schedule.micro_batches && (s == 0 || before[s - 1] > next[s]);
    if (schedule.rank_of_stage[s] != rank || !is_ready) continue;
    if (best < 0 || next[s] <= next[static_cast<size_t>(best)]) best = static_cast<int>(s);
  }
  return best;
}

}  // namespace

// The ranks take tasks in rounds, in each of which a rank runs at most one.
PipelineSchedule forwards_only(const PipelineSchedule& schedule, int micro_batches) {
  PipelineSchedule forwards = schedule;
  forwards.micro_batches = micro_batches;
  for (auto& steps : forwards.ranks) steps.clear();
  std::vector<int> next(static_cast<size_t>(schedule.stages()), 0);
  for (bool moves = true; moves;) {
    const std::vector<int> before = next;
    moves = false;
    for (int rank = 0; rank < static_cast<int>(forwards.ranks.size()); ++rank) {
      const int stage = choose_stage(forwards, rank, next, before);
      if (stage < 0) continue;
      forwards.ranks[static_cast<size_t>(rank)].push_back({{TaskKind::forward, stage, next[static_cast<size_t>(stage)]++}});
      moves = true;
    }
  }
  return forwards;
}

}  // namespace zt::pipe
