#include "timing.h"

#include <algorithm>
#include <cmath>

#include "zt/base/error.h"

namespace zt::pipe {

namespace {

class Play {
 public:
  Play(const Schedule& schedule, const Times& times)
      : schedule_(schedule),
        times_(times_of_stages(times, schedule)),
        transfer_(times.transfer),
        forward_(size(), kNever),
        backward_(size(), kNever),
        next_(schedule.ranks.size(), 0),
        free_(schedule.ranks.size(), 0) {
    timing_.ranks.resize(schedule.ranks.size());
  }

  Timing run() {
    bool moves = true;
    while (moves) {
      moves = false;
      for (int rank = 0; rank < static_cast<int>(next_.size()); ++rank) {
        while (advance(rank)) moves = true;
      }
    }
    for (size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] < schedule_.ranks[rank].size()) timing_.stuck.resize(next_.size(), -1);
    }
    for (size_t rank = 0; rank < timing_.stuck.size(); ++rank) {
      if (next_[rank] < schedule_.ranks[rank].size()) timing_.stuck[rank] = static_cast<int>(next_[rank]);
    }
    summarize();
    return std::move(timing_);
  }

 private:
  size_t size() const { return static_cast<size_t>(schedule_.stages()) * static_cast<size_t>(schedule_.micro_batches); }
  size_t place(int stage, int micro_batch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(schedule_.micro_batches) + static_cast<size_t>(micro_batch);
  }

  // Returns when a result of another stage is at `rank`.
  double arrival(const std::vector<double>& ends, int stage, int micro_batch, int rank) const {
    const double end = ends[place(stage, micro_batch)];
    return schedule_.rank_of_stage[static_cast<size_t>(stage)] == rank ? end : end + transfer_;
  }

  double ready(const Task& task, int rank) const {
    const auto [kind, stage, m] = task;
    switch (kind) {
      case TaskKind::forward:
        return stage == 0 ? 0 : arrival(forward_, stage - 1, m, rank);
      case TaskKind::weight_grad:
        return backward_[place(stage, m)];
      default:
        return std::max(forward_[place(stage, m)], stage + 1 == schedule_.stages() ? 0 : arrival(backward_, stage + 1, m, rank));
    }
  }

  bool advance(int rank) {
    const auto r = static_cast<size_t>(rank);
    if (next_[r] == schedule_.ranks[r].size()) return false;
    const Step& step = schedule_.ranks[r][next_[r]];
    const double start = std::max(ready(step.task, rank), step.beside ? ready(*step.beside, rank) : 0);
    if (start == kNever) return false;
    const double begin = std::max(start, free_[r]);
    double length = times_[static_cast<size_t>(step.task.stage)].of(step.task.kind);
    if (step.beside) length += times_[static_cast<size_t>(step.beside->stage)].of(step.beside->kind);
    free_[r] = begin + length;
    for_each_task(step, [&](const Task& task) { finish(task, free_[r]); });
    timing_.ranks[r].steps.push_back({begin, free_[r]});
    timing_.ranks[r].busy += length;
    ++next_[r];
    return true;
  }

  void finish(const Task& task, double end) {
    if (task.kind == TaskKind::forward) forward_[place(task.stage, task.micro_batch)] = end;
    else if (task.kind != TaskKind::weight_grad) backward_[place(task.stage, task.micro_batch)] = end;
  }

  void summarize() {
    for (const TimedRank& rank : timing_.ranks) {
      if (!rank.steps.empty()) timing_.seconds = std::max(timing_.seconds, rank.steps.back().end);
    }
    for (size_t r = 0; r < timing_.ranks.size(); ++r) {
      TimedRank& rank = timing_.ranks[r];
      if (!rank.steps.empty()) rank.span_bubble = rank.steps.back().end - rank.steps.front().begin - rank.busy;
      rank.barrier_bubble = timing_.seconds - rank.busy;
      rank.most_held = most_held(schedule_.ranks[r]);
    }
  }

  static int most_held(const std::vector<Step>& steps) {
    int held = 0, most = 0;
    const auto change = [](const Task& task) {
      return task.kind == TaskKind::forward ? 1 : task.kind == TaskKind::input_grad ? 0 : -1;
    };
    for (const Step& step : steps) {
      const int first = change(step.task), second = step.beside ? change(*step.beside) : 0;
      most = std::max(most, held + std::max(first, 0) + std::max(second, 0));
      held += first + second;
    }
    return most;
  }

  const Schedule& schedule_;
  std::vector<StageTimes> times_;
  double transfer_;
  std::vector<double> forward_, backward_;  // when a task of the stage and micro-batch ended
  std::vector<size_t> next_;                // by rank: its next step
  std::vector<double> free_;                // by rank: when its last step ended
  Timing timing_;
};

}  // namespace

double StageTimes::of(TaskKind kind) const {
  switch (kind) {
    case TaskKind::forward:
      return forward;
    case TaskKind::backward:
      return input_grad + weight_grad;
    case TaskKind::input_grad:
      return input_grad;
    default:
      return weight_grad;
  }
}

std::vector<StageTimes> times_of_stages(const Times& times, const Schedule& schedule) {
  const auto stages = static_cast<size_t>(schedule.stages());
  if (times.stages.empty()) {
    const double part = 1.0 / std::max(1, schedule.chunks());
    return std::vector<StageTimes>(stages, StageTimes{part, part, part});
  }
  if (times.stages.size() != stages)
    misuse("there are times of {} stages, and the schedule has {}: give one entry per stage", times.stages.size(), stages);
  return times.stages;
}

Timing time_schedule(const Schedule& schedule, const Times& times) {
  return Play(schedule, times).run();
}

}  // namespace zt::pipe
