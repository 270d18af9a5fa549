#include "pipe/support/random_schedule.h"

#include <algorithm>
#include <random>

namespace zt::test {

using namespace pipe;
using pipe::PipelineSchedule;

namespace {

using Random = std::mt19937;

int below(Random& random, int count) {
  return static_cast<int>(random() % static_cast<unsigned>(count));
}

// The progress of one pair of stage and micro-batch.
struct Progress {
  bool forward = false, backward = false, weights = false;
  bool splits = false;
};

class Drawing {
 public:
  Drawing(PipelineSchedule& schedule, Random& random)
      : schedule_(schedule),
        random_(random),
        progress_(static_cast<size_t>(schedule.stages()), std::vector<Progress>(static_cast<size_t>(schedule.micro_batches))) {
    for (auto& of_stage : progress_) {
      for (Progress& each : of_stage) each.splits = below(random, 2) == 0;
    }
  }

  void run() {
    for (;;) {
      const std::vector<Task> ready = ready_tasks();
      if (ready.empty()) return;
      const Task task = ready[static_cast<size_t>(below(random_, static_cast<int>(ready.size())))];
      Progress& mine = at(task.stage, task.micro_batch);
      if (task.kind == TaskKind::forward) mine.forward = true;
      else if (task.kind == TaskKind::weight_grad) mine.weights = true;
      else mine.backward = true;
      if (task.kind == TaskKind::backward) mine.weights = true;
      schedule_.ranks[static_cast<size_t>(schedule_.rank_of_stage[static_cast<size_t>(task.stage)])].push_back({task});
    }
  }

 private:
  Progress& at(int stage, int m) { return progress_[static_cast<size_t>(stage)][static_cast<size_t>(m)]; }

  std::vector<Task> ready_tasks() {
    std::vector<Task> ready;
    for (int s = 0; s < schedule_.stages(); ++s) {
      for (int m = 0; m < schedule_.micro_batches; ++m) {
        const Progress& mine = at(s, m);
        const bool sums_are_in_order = m == 0 || at(s, m - 1).weights;
        const bool has_gradient = s + 1 == schedule_.stages() || at(s + 1, m).backward;
        if (!mine.forward && (s == 0 || at(s - 1, m).forward)) ready.push_back({TaskKind::forward, s, m});
        if (mine.forward && !mine.backward && has_gradient && (mine.splits || sums_are_in_order))
          ready.push_back({mine.splits ? TaskKind::input_grad : TaskKind::backward, s, m});
        if (mine.backward && !mine.weights && sums_are_in_order) ready.push_back({TaskKind::weight_grad, s, m});
      }
    }
    return ready;
  }

  PipelineSchedule& schedule_;
  Random& random_;
  std::vector<std::vector<Progress>> progress_;  // by stage, then by micro-batch
};

}  // namespace

PipelineSchedule random_schedule(uint32_t seed) {
  Random random(seed);
  const int ranks = 2 + below(random, 3), stages = ranks * (1 + below(random, 2));
  PipelineSchedule schedule{
      .placement = StagePlacement::by_stage, .micro_batches = 1 + below(random, 6), .rank_of_stage = {}, .ranks = {}};
  for (int s = 0; s < stages; ++s) schedule.rank_of_stage.push_back(s < ranks ? s : below(random, ranks));
  std::shuffle(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end(), random);
  schedule.ranks.resize(static_cast<size_t>(ranks));
  Drawing(schedule, random).run();
  return schedule;
}

PipelineSchedule broken_schedule(uint32_t seed) {
  PipelineSchedule schedule = random_schedule(seed);
  Random random(seed + 1'000'000);
  for (int edits = 1 + below(random, 3); edits > 0; --edits) {
    auto& steps = schedule.ranks[static_cast<size_t>(below(random, static_cast<int>(schedule.ranks.size())))];
    if (steps.size() < 2) continue;
    const auto a = below(random, static_cast<int>(steps.size())), b = below(random, static_cast<int>(steps.size()));
    Task& task = steps[static_cast<size_t>(a)].task;
    switch (below(random, 5)) {
      case 0:
        std::swap(steps[static_cast<size_t>(a)], steps[static_cast<size_t>(b)]);
        break;
      case 1:
        steps.insert(steps.begin() + b, steps[static_cast<size_t>(a)]);
        break;
      case 2:
        steps.erase(steps.begin() + a);
        break;
      case 3:
        task.kind = static_cast<TaskKind>(below(random, 4));
        break;
      default:
        task.micro_batch = below(random, schedule.micro_batches + 1);
    }
  }
  return schedule;
}

}  // namespace zt::test
