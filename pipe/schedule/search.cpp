// The list scheduler of: P. Qi et al.: Zero bubble pipeline parallelism. ICLR 2024.
#include "search.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "zt/base/error.h"

namespace zt::pipe {

namespace {

// The choices that a scheduler leaves open. `search` tries all of them.
struct SearchRules {
  bool back_first = true;       // of the forwards that are ready, that of the last stage comes first, else the oldest micro-batch
  bool divides_memory = false;  // each stage has a part of its rank's memory for itself
};

class ListScheduler {
 public:
  ListScheduler(const SearchOptions& options, const SearchRules& rules)
      : options_(options),
        rules_(rules),
        schedule_(empty_schedule(options.placement, options.ranks, options.chunks, options.micro_batches)),
        times_(times_of_stages(options.times, schedule_)),
        ends_(schedule_, options.times.transfer),
        stages_(static_cast<size_t>(schedule_.stages())) {
    for (size_t s = 0; s < stages_.size(); ++s) stages_[s].activation = options.activations.empty() ? 1 : options.activations[s];
    for (int rank = 0; rank < options.ranks; ++rank) divide_memory(rank);
  }

  PipelineSchedule run() {
    std::vector<double> free(static_cast<size_t>(options_.ranks), 0);
    std::priority_queue<double, std::vector<double>, std::greater<>> moments({}, {0.0});
    while (!moments.empty()) {
      const double now = moments.top();
      while (!moments.empty() && moments.top() == now) moments.pop();
      for (int rank = 0; rank < options_.ranks; ++rank) {
        const auto r = static_cast<size_t>(rank);
        if (free[r] > now) continue;
        const auto task = choose(rank, now);
        if (!task) continue;
        free[r] = now + times_[static_cast<size_t>(task->stage)].of(task->kind);
        record(*task, free[r]);
        moments.push(free[r]);
        if (options_.times.transfer > 0) moments.push(free[r] + options_.times.transfer);
      }
    }
    return std::move(schedule_);
  }

 private:
  struct Stage {
    int forwards = 0, input_grads = 0, weight_grads = 0;  // tasks so far: the next micro-batch of each
    double activation = 1;
    double room = kNever;  // for its activations
    double held() const { return activation * (forwards - weight_grads); }
  };

  std::vector<int> stages_of(int rank) const {
    std::vector<int> stages;
    for (int s = 0; s < schedule_.stages(); ++s) {
      if (schedule_.rank_of_stage[static_cast<size_t>(s)] == rank) stages.push_back(s);
    }
    return stages;
  }

  // A stage holds a micro-batch for the longer the earlier it comes in the model.
  void divide_memory(int rank) {
    if (options_.memory.empty() || !rules_.divides_memory) return;
    const std::vector<int> stages = stages_of(rank);
    double sum = 0, left = options_.memory[static_cast<size_t>(rank)];
    const auto weight = [&](int s) { return (schedule_.stages() - s - 0.5) * stages_[static_cast<size_t>(s)].activation; };
    for (const int s : stages) sum += weight(s);
    const double whole = left;
    for (const int s : stages) {
      Stage& stage = stages_[static_cast<size_t>(s)];
      stage.room = std::max(1.0, std::floor(whole * weight(s) / sum / stage.activation)) * stage.activation;
      left -= stage.room;
    }
    for (const int s : stages) {  // what rounding has left over
      Stage& stage = stages_[static_cast<size_t>(s)];
      if (left < stage.activation) continue;
      stage.room += stage.activation;
      left -= stage.activation;
    }
  }

  bool is_ready(const Task& task, double now) const {
    return task.micro_batch < options_.micro_batches && ends_.ready(task) <= now;
  }

  // A forward leaves room for one micro-batch of each later stage of the rank, or these could never start.
  bool has_room(int s, const std::vector<int>& stages, int rank) const {
    const Stage& stage = stages_[static_cast<size_t>(s)];
    if (stage.held() + stage.activation > stage.room) return false;
    if (options_.memory.empty()) return true;
    double held = stage.activation;
    for (const int other : stages) {
      const Stage& its = stages_[static_cast<size_t>(other)];
      held += other > s && its.held() == 0 && its.forwards < options_.micro_batches ? its.activation : its.held();
    }
    return held <= options_.memory[static_cast<size_t>(rank)];
  }

  std::optional<Task> choose(int rank, double now) const {
    const std::vector<int> stages = stages_of(rank);
    std::optional<Task> best;
    for (const int s : stages) {
      const int m = stages_[static_cast<size_t>(s)].input_grads;
      if (is_ready({TaskKind::input_grad, s, m}, now) && (!best || m < best->micro_batch)) best = {TaskKind::input_grad, s, m};
    }
    if (best) return best;
    for (const int s : stages) {
      const int m = stages_[static_cast<size_t>(s)].forwards;
      const bool is_better = !best || rules_.back_first || m <= best->micro_batch;
      if (is_ready({TaskKind::forward, s, m}, now) && has_room(s, stages, rank) && is_better) best = {TaskKind::forward, s, m};
    }
    if (best) return best;
    for (const int s : stages) {
      const int m = stages_[static_cast<size_t>(s)].weight_grads;
      if (is_ready({TaskKind::weight_grad, s, m}, now) && (!best || m < best->micro_batch)) best = {TaskKind::weight_grad, s, m};
    }
    return best;
  }

  void record(const Task& task, double end) {
    Stage& stage = stages_[static_cast<size_t>(task.stage)];
    ends_.add(task, end);
    ++(task.kind == TaskKind::forward      ? stage.forwards
       : task.kind == TaskKind::input_grad ? stage.input_grads
                                           : stage.weight_grads);
    schedule_.ranks[static_cast<size_t>(schedule_.rank_of_stage[static_cast<size_t>(task.stage)])].push_back({task});
  }

  const SearchOptions& options_;
  SearchRules rules_;
  PipelineSchedule schedule_;
  std::vector<StageTimes> times_;
  Ends ends_;
  std::vector<Stage> stages_;
};

void check_memory(const SearchOptions& options) {
  const auto ranks = static_cast<size_t>(options.ranks), stages = ranks * static_cast<size_t>(options.chunks);
  if (!options.activations.empty() && options.activations.size() != stages)
    misuse("pipe.schedule.search: activations of {} stages, and there are {}: give one entry per stage",
           options.activations.size(), stages);
  if (options.memory.empty()) return;
  if (options.memory.size() != ranks)
    misuse("pipe.schedule.search: memory of {} ranks, and there are {}: give one number, or one per rank", options.memory.size(),
           ranks);
  const std::vector<int> rank_of_stage = place_stages(options.placement, options.ranks, options.chunks);
  std::vector<double> least(ranks, 0);
  for (size_t s = 0; s < stages; ++s)
    least[static_cast<size_t>(rank_of_stage[s])] += options.activations.empty() ? 1 : options.activations[s];
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (options.memory[rank] >= least[rank]) continue;
    misuse("pipe.schedule.search: rank {} may hold {} and one micro-batch of each of its stages takes {}: give it more memory",
           rank, options.memory[rank], least[rank]);
  }
}

}  // namespace

PipelineSchedule search(const SearchOptions& options) {
  check_memory(options);
  std::optional<PipelineSchedule> best;
  double best_seconds = kNever;
  int best_held = 0;
  for (const bool back_first : {true, false}) {
    for (const bool divides_memory : {false, true}) {
      PipelineSchedule found = ListScheduler(options, {back_first, divides_memory}).run();
      const Timing timing = time_schedule(found, options.times);
      const bool is_better = timing.seconds < best_seconds || (timing.seconds == best_seconds && timing.most_held() < best_held);
      if (best && !is_better) continue;
      best_seconds = timing.seconds;
      best_held = timing.most_held();
      best = std::move(found);
    }
  }
  return *std::move(best);
}

}  // namespace zt::pipe
