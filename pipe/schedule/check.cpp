#include "check.h"

#include <algorithm>

#include "timing.h"
#include "zt/base/error.h"

namespace zt::pipe {

namespace {

class ScheduleChecker {
 public:
  explicit ScheduleChecker(const PipelineSchedule& schedule) : schedule_(schedule) {
    const bool is_sane = schedule.stages() > 0 && schedule.micro_batches > 0;
    places_.resize(is_sane ? schedule.places() : 0);
  }

  std::vector<Mistake> run(int most_held) {
    check_header();
    if (!mistakes_.empty()) return std::move(mistakes_);
    for (int rank = 0; rank < ranks(); ++rank) check_ranges(rank);
    if (!mistakes_.empty()) return std::move(mistakes_);
    for (int rank = 0; rank < ranks(); ++rank) check_rank(rank);
    for (int stage = 0; stage < schedule_.stages(); ++stage) check_complete(stage);
    if (mistakes_.empty()) check_times(most_held);
    std::ranges::stable_sort(
        mistakes_, [](const Mistake& a, const Mistake& b) { return std::pair(a.rank, a.step) < std::pair(b.rank, b.step); });
    return std::move(mistakes_);
  }

 private:
  // Steps of the owning rank; -1: none.
  struct Place {
    int forward = -1, backward = -1, weights = -1;  // backward: B or I; weights: B or W
  };

  int ranks() const { return static_cast<int>(schedule_.ranks.size()); }
  Place& place(const Task& task) { return places_[schedule_.place(task.stage, task.micro_batch)]; }
  const Place& place(const Task& task) const { return places_[schedule_.place(task.stage, task.micro_batch)]; }

  template <class... Args>
  void say(int rank, int step, fmt::format_string<Args...> format, Args&&... args) {
    std::string reason = fmt::format(format, std::forward<Args>(args)...);
    if (step >= 0) {
      const PipelineStep& at = schedule_.ranks[static_cast<size_t>(rank)][static_cast<size_t>(step)];
      reason = fmt::format("({}) {}", text_of(at), reason);
    }
    mistakes_.push_back({rank, step, std::move(reason)});
  }

  void check_header() {
    if (ranks() < 1 || schedule_.stages() < 1 || schedule_.micro_batches < 1)
      return say(-1, -1, "it has {} ranks, {} stages and {} micro-batches: each must be at least 1", ranks(), schedule_.stages(),
                 schedule_.micro_batches);
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      const int rank = schedule_.rank_of_stage[static_cast<size_t>(stage)];
      if (rank < 0 || rank >= ranks()) say(-1, -1, "stage {} is placed on rank {}, and there are {} ranks", stage, rank, ranks());
    }
  }

  template <class Visit>
  void for_each_task(int rank, Visit visit) {
    const auto& steps = schedule_.ranks[static_cast<size_t>(rank)];
    for (int step = 0; step < static_cast<int>(steps.size()); ++step) {
      pipe::for_each_task(steps[static_cast<size_t>(step)], [&](const Task& task) { visit(step, task); });
    }
  }

  void check_ranges(int rank) {
    for_each_task(rank, [&](int step, const Task& task) {
      if (task.stage < 0 || task.stage >= schedule_.stages())
        return say(rank, step, "there is no stage {}: the schedule has {}, counted from 0", task.stage, schedule_.stages());
      if (task.micro_batch < 0 || task.micro_batch >= schedule_.micro_batches)
        return say(rank, step, "there is no micro-batch {}: the schedule has {}, counted from 0", task.micro_batch,
                   schedule_.micro_batches);
      const int owner = schedule_.rank_of_stage[static_cast<size_t>(task.stage)];
      if (owner != rank) say(rank, step, "stage {} is on rank {}: a stage runs on one rank only", task.stage, owner);
    });
  }

  void check_rank(int rank) {
    std::vector<int> latest(static_cast<size_t>(schedule_.stages()), -1);  // by stage: micro-batch of its latest B or W
    for_each_task(rank, [&](int step, const Task& task) {
      Place& mine = place(task);
      switch (task.kind) {
        case TaskKind::forward:
          return once(rank, step, mine.forward, "F");
        case TaskKind::input_grad:
          if (mine.forward < 0) say(rank, step, "its F does not come before: put {}F{} first", task.stage, task.micro_batch);
          return once(rank, step, mine.backward, "backward");
        case TaskKind::backward:
          if (mine.forward < 0) say(rank, step, "its F does not come before: put {}F{} first", task.stage, task.micro_batch);
          once(rank, step, mine.backward, "backward");
          break;
        default:
          if (mine.backward < 0) say(rank, step, "its I does not come before: put {}I{} first", task.stage, task.micro_batch);
          else if (mine.weights == mine.backward)
            return say(rank, step, "its backward is a B, which has computed the weights' gradients: remove the W");
          once(rank, step, mine.weights, "W");
      }
      if (task.kind == TaskKind::backward) mine.weights = mine.backward;
      int& before = latest[static_cast<size_t>(task.stage)];
      if (before > task.micro_batch)
        say(rank, step,
            "it comes after that of micro-batch {}: gradients of a stage are summed in ascending order of micro-batches, or their "
            "bits would depend on the schedule; {}",
            before,
            task.kind == TaskKind::weight_grad
                ? "put the W's in that order"
                : "put the B's in that order, or split them: the I's may come in any order, then the W's in ascending order");
      before = std::max(before, task.micro_batch);
    });
  }

  void once(int rank, int step, int& known, const char* what) {
    if (known >= 0) say(rank, step, "it repeats the {} of step {}: remove one", what, known + 1);
    else known = step;
  }

  void check_complete(int stage) {
    const int rank = schedule_.rank_of_stage[static_cast<size_t>(stage)];
    int forwards = 0, backwards = 0, weights = 0;
    std::string first_forward, first_backward, first_weights;
    for (int m = 0; m < schedule_.micro_batches; ++m) {
      const Place& mine = place({TaskKind::forward, stage, m});
      const auto note = [&](int& count, std::string& first, char letter) {
        if (count++ == 0) first = fmt::format("{}{}{}", stage, letter, m);
      };
      if (mine.forward < 0) note(forwards, first_forward, 'F');
      else if (mine.backward < 0) note(backwards, first_backward, 'B');
      else if (mine.weights < 0) note(weights, first_weights, 'W');
    }
    const auto report = [&](int count, const std::string& first, const char* advice) {
      if (count > 0)
        say(rank, -1, "{}{} is missing: {}", first, count > 1 ? fmt::format(" (and {} others of this stage)", count - 1) : "",
            advice);
    };
    report(forwards, first_forward, "each stage runs once per micro-batch");
    report(backwards, first_backward, "each forward has a B, or an I and a W");
    report(weights, first_weights, "each I has a W");
  }

  void check_times(int most_held) {
    const Timing timing = time_schedule(schedule_);
    for (int rank = 0; rank < static_cast<int>(timing.stuck.size()); ++rank) {
      if (const int step = timing.stuck[static_cast<size_t>(rank)]; step >= 0)
        say(rank, step, "{}", why_stuck(rank, timing.stuck));
    }
    for (int rank = 0; rank < ranks() && most_held > 0; ++rank) {
      const int held = timing.ranks[static_cast<size_t>(rank)].most_held;
      if (held > most_held) say(rank, -1, "it holds up to {} activations, and {} are allowed", held, most_held);
    }
  }

  // Returns the task of another rank that the step waits for, and the circle of ranks that wait for each other.
  std::string why_stuck(int rank, const std::vector<int>& stuck) const {
    std::vector<int> path{rank};
    std::string reason;
    for (;;) {
      const auto [awaited, owner] = awaited_by(path.back(), stuck);
      if (reason.empty())
        reason = fmt::format("it waits for ever for {}, which rank {} runs {}", awaited, owner,
                             owner == rank ? "later" : fmt::format("after its step {}", stuck[static_cast<size_t>(owner)] + 1));
      const auto seen = std::ranges::find(path, owner);
      if (seen == path.end()) {
        path.push_back(owner);
        continue;
      }
      const std::vector<int> circle(seen, path.end());
      return circle.size() < 2 ? reason
                               : fmt::format("{}; the ranks {} wait for each other in a circle", reason, fmt::join(circle, ", "));
    }
  }

  // Returns the task that the rank's next step needs and that has not run, and the rank that has it in its list.
  std::pair<std::string, int> awaited_by(int rank, const std::vector<int>& stuck) const {
    const PipelineStep& step = schedule_.ranks[static_cast<size_t>(rank)][static_cast<size_t>(stuck[static_cast<size_t>(rank)])];
    const auto has_run = [&](const Task& task) {
      const int end = stuck[static_cast<size_t>(schedule_.rank_of_stage[static_cast<size_t>(task.stage)])];
      return end < 0 || (task.kind == TaskKind::forward ? place(task).forward : place(task).backward) < end;
    };
    for (const Task* task : {&step.task, step.beside ? &*step.beside : nullptr}) {
      if (!task) continue;
      const auto [own, received] = waits_of(*task, schedule_.stages());
      if (received && !has_run(*received))
        return {fmt::format("the {} of stage {}, micro-batch {}", received->kind == TaskKind::forward ? "F" : "backward",
                            received->stage, received->micro_batch),
                schedule_.rank_of_stage[static_cast<size_t>(received->stage)]};
      if (own && !has_run(*own)) return {fmt::format("the F of stage {}, micro-batch {}", own->stage, own->micro_batch), rank};
    }
    return {"itself", rank};
  }

  const PipelineSchedule& schedule_;
  std::vector<Place> places_;  // by stage and micro-batch
  std::vector<Mistake> mistakes_;
};

}  // namespace

std::string Mistake::text() const {
  if (rank < 0) return "the schedule: " + reason;
  if (step < 0) return fmt::format("rank {}: {}", rank, reason);
  return fmt::format("rank {}, step {} {}", rank, step + 1, reason);
}

std::vector<Mistake> check(const PipelineSchedule& schedule, int most_held) {
  return ScheduleChecker(schedule).run(most_held);
}

void require_correct(const PipelineSchedule& schedule, const std::string& name) {
  constexpr size_t kMostShown = 10;
  const std::vector<Mistake> mistakes = check(schedule);
  if (mistakes.empty()) return;
  std::string text;
  for (size_t i = 0; i < std::min(mistakes.size(), kMostShown); ++i) text += "\n  " + mistakes[i].text();
  if (mistakes.size() > kMostShown) text += fmt::format("\n  and {} more", mistakes.size() - kMostShown);
  misuse("{} is refused:{}", name, text);
}

}  // namespace zt::pipe
