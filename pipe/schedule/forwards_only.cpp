#include <algorithm>

#include "recipes.h"

namespace zt::pipe {

namespace {

// Lets ranks take tasks in rounds, in each of which a rank runs at most one.
class Rounds {
 public:
  explicit Rounds(PipelineSchedule& schedule) : schedule_(schedule), next_(static_cast<size_t>(schedule.stages()), 0) {}

  void run() {
    bool moves = true;
    while (moves) {
      const std::vector<int> before = next_;
      moves = false;
      for (int rank = 0; rank < static_cast<int>(schedule_.ranks.size()); ++rank) {
        const int stage = choose(rank, before);
        if (stage < 0) continue;
        schedule_.ranks[static_cast<size_t>(rank)].push_back({{TaskKind::forward, stage, next_[static_cast<size_t>(stage)]++}});
        moves = true;
      }
    }
  }

 private:
  // Returns the rank's stage with the oldest micro-batch that is ready; -1: none is.
  int choose(int rank, const std::vector<int>& before) const {
    int best = -1;
    for (size_t s = 0; s < next_.size(); ++s) {
      const bool is_ready = next_[s] < schedule_.micro_batches && (s == 0 || before[s - 1] > next_[s]);
      if (schedule_.rank_of_stage[s] != rank || !is_ready) continue;
      if (best < 0 || next_[s] <= next_[static_cast<size_t>(best)]) best = static_cast<int>(s);
    }
    return best;
  }

  PipelineSchedule& schedule_;
  std::vector<int> next_;  // by stage: the next micro-batch
};

}  // namespace

PipelineSchedule forwards_only(const PipelineSchedule& schedule, int micro_batches) {
  PipelineSchedule forwards = schedule;
  forwards.micro_batches = micro_batches;
  for (auto& steps : forwards.ranks) steps.clear();
  Rounds(forwards).run();
  return forwards;
}

}  // namespace zt::pipe
