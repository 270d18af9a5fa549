// Plays a schedule: when each task would run, how long ranks are idle, and what they hold.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "schedule.h"

namespace zt::pipe {

// Seconds, or any other unit.
struct StageTimes {
  double forward = 1, input_grad = 1, weight_grad = 1;  // B takes input_grad + weight_grad
  double of(TaskKind kind) const;
};
struct Times {
  std::vector<StageTimes> stages = {};  // by stage; empty: 1 divided by the number of chunks for each task
  double transfer = 0;                  // of a value or gradient from one rank to another
};
// Returns the times of all stages. Throws Misuse if `times` has another number of stages.
std::vector<StageTimes> times_of_stages(const Times& times, const PipelineSchedule& schedule);

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// When tasks end while a schedule is made or played.
class Ends {
 public:
  // `transfer`: the time of a value or gradient from one rank to another. Keeps a reference to the schedule's ranks of stages.
  Ends(const PipelineSchedule& schedule, double transfer)
      : schedule_(schedule), transfer_(transfer), forward_(schedule.places(), kNever), backward_(schedule.places(), kNever) {}

  // Returns from when on a task could start on its rank, because what it waits for (waits_of) is there. kNever: that is not known
  // yet.
  double ready(const Task& task) const;
  void add(const Task& task, double end);

 private:
  const PipelineSchedule& schedule_;
  double transfer_;
  std::vector<double> forward_, backward_;  // by PipelineSchedule::place; backward_: of B or I
};

struct TimedStep {
  double begin = 0, end = 0;
};
struct TimedRank {
  std::vector<TimedStep> steps;
  double busy = 0;            // sum of its tasks
  double span_bubble = 0;     // idle between its first and its last task
  double barrier_bubble = 0;  // idle until all ranks are done
  int most_held = 0;          // most pairs of stage and micro-batch between the begin of F and the end of B or W
};
struct Timing {
  double seconds = 0;  // until all ranks are done
  std::vector<TimedRank> ranks;
  // By rank: the index of the step that waits for ever. Empty if all run.
  std::vector<int> stuck;
  // Returns the most that a rank holds.
  int most_held() const { return std::ranges::max_element(ranks, {}, &TimedRank::most_held)->most_held; }
};

// Tasks run as soon as their rank is free and what they need is there. The two tasks of an overlapped step run for the sum of
// their times, and both end with it. Requires that ranks and stages of all tasks are in range.
Timing time_schedule(const PipelineSchedule& schedule, const Times& times = {});

}  // namespace zt::pipe
