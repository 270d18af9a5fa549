#include "timing.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt::pipe {

namespace {

class Play {
 public:
  Play(const PipelineSchedule& schedule, const Times& times)
      : schedule_(schedule),
        times_(times_of_stages(times, schedule)),
        ends_(schedule, times.transfer),
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
  bool advance(int rank) {
    const auto r = static_cast<size_t>(rank);
    if (next_[r] == schedule_.ranks[r].size()) return false;
    const PipelineStep& step = schedule_.ranks[r][next_[r]];
    const double start = std::max(ends_.ready(step.task), step.beside ? ends_.ready(*step.beside) : 0);
    if (start == kNever) return false;
    const double begin = std::max(start, free_[r]);
    double length = times_[static_cast<size_t>(step.task.stage)].of(step.task.kind);
    if (step.beside) length += times_[static_cast<size_t>(step.beside->stage)].of(step.beside->kind);
    free_[r] = begin + length;
    for_each_task(step, [&](const Task& task) { ends_.add(task, free_[r]); });
    timing_.ranks[r].steps.push_back({begin, free_[r]});
    timing_.ranks[r].busy += length;
    ++next_[r];
    return true;
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

  static int most_held(const std::vector<PipelineStep>& steps) {
    int held = 0, most = 0;
    const auto change = [](const Task& task) {
      return task.kind == TaskKind::forward ? 1 : task.kind == TaskKind::input_grad ? 0 : -1;
    };
    for (const PipelineStep& step : steps) {
      const int first = change(step.task), second = step.beside ? change(*step.beside) : 0;
      most = std::max(most, held + std::max(first, 0) + std::max(second, 0));
      held += first + second;
    }
    return most;
  }

  const PipelineSchedule& schedule_;
  std::vector<StageTimes> times_;
  Ends ends_;
  std::vector<size_t> next_;  // by rank: its next step
  std::vector<double> free_;  // by rank: when its last step ended
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

double Ends::ready(const Task& task) const {
  const auto [own, received] = waits_of(task, schedule_.stages());
  const auto end_of = [&](const Task& needed) {
    return (needed.kind == TaskKind::forward ? forward_ : backward_)[schedule_.place(needed.stage, needed.micro_batch)];
  };
  const double here = own ? end_of(*own) : 0;
  if (!received) return here;
  const auto& ranks = schedule_.rank_of_stage;
  const bool moves = ranks[static_cast<size_t>(received->stage)] != ranks[static_cast<size_t>(task.stage)];
  return std::max(here, end_of(*received) + (moves ? transfer_ : 0));
}

void Ends::add(const Task& task, double end) {
  if (task.kind == TaskKind::weight_grad) return;  // no task waits for it
  (task.kind == TaskKind::forward ? forward_ : backward_)[schedule_.place(task.stage, task.micro_batch)] = end;
}

std::vector<StageTimes> times_of_stages(const Times& times, const PipelineSchedule& schedule) {
  const auto stages = static_cast<size_t>(schedule.stages());
  if (times.stages.empty()) {
    const double part = 1.0 / std::max(1, schedule.chunks());
    return std::vector<StageTimes>(stages, StageTimes{part, part, part});
  }
  if (times.stages.size() != stages)
    misuse("there are times of {} stages, and the schedule has {}: give one entry per stage", times.stages.size(), stages);
  return times.stages;
}

Timing time_schedule(const PipelineSchedule& schedule, const Times& times) {
  return Play(schedule, times).run();
}

}  // namespace zt::pipe
