#include <algorithm>
#include <deque>

#include "recipes.h"
#include "search.h"

namespace zt::pipe {

namespace {

// Inserts the W's while the schedule is played.
class Splitter {
 public:
  Splitter(const PipelineSchedule& whole, const Times& times, std::vector<int> most_held)
      : whole_(whole),
        times_(times_of_stages(times, whole)),
        ends_(whole, times.transfer),
        split_(whole),
        most_held_(std::move(most_held)) {
    ranks_.resize(whole.ranks.size());
    for (auto& steps : split_.ranks) steps.clear();
  }

  PipelineSchedule run() {
    bool moves = true;
    while (moves) {
      moves = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        while (advance(rank)) moves = true;
      }
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      while (!ranks_[rank].weights.empty()) add_weight_grad(rank);
    }
    return std::move(split_);
  }

 private:
  struct Rank {
    size_t next = 0;
    double free = 0;
    int held = 0;
    std::deque<Task> weights;
  };

  bool advance(size_t rank) {
    Rank& state = ranks_[rank];
    if (state.next == whole_.ranks[rank].size()) return false;
    Task task = whole_.ranks[rank][state.next].task;
    const double start = ends_.ready(task);
    if (start == kNever) return false;
    const bool is_forward = task.kind == TaskKind::forward;
    while (!state.weights.empty() && (state.free < start || (is_forward && state.held >= most_held_[rank])))
      add_weight_grad(rank);
    if (!is_forward) task.kind = TaskKind::input_grad;
    state.free = std::max(start, state.free) + times_[static_cast<size_t>(task.stage)].of(task.kind);
    ends_.add(task, state.free);
    split_.ranks[rank].push_back({task});
    if (is_forward) ++state.held;
    else state.weights.push_back({TaskKind::weight_grad, task.stage, task.micro_batch});
    ++state.next;
    return true;
  }

  void add_weight_grad(size_t rank) {
    Rank& state = ranks_[rank];
    const Task task = state.weights.front();
    state.weights.pop_front();
    state.free += times_[static_cast<size_t>(task.stage)].weight_grad;
    --state.held;
    split_.ranks[rank].push_back({task});
  }

  const PipelineSchedule& whole_;
  std::vector<StageTimes> times_;
  Ends ends_;
  PipelineSchedule split_;
  std::vector<int> most_held_;  // by rank, in the schedule with whole backwards
  std::vector<Rank> ranks_;
};

}  // namespace

PipelineSchedule split_backwards(const PipelineSchedule& schedule, const Times& times, std::vector<int> most_held) {
  return Splitter(schedule, times, std::move(most_held)).run();
}

PipelineSchedule interleaved_zb(const Shape& shape) {
  const PipelineSchedule whole = interleaved(shape);
  std::vector<int> most_held;
  for (const TimedRank& rank : time_schedule(whole).ranks) most_held.push_back(rank.most_held);
  return split_backwards(whole, {}, std::move(most_held));
}

}  // namespace zt::pipe
