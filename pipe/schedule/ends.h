// When tasks end while a schedule is made or played.
#pragma once

#include <limits>
#include <vector>

#include "schedule.h"

namespace zt::pipe {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

class Ends {
 public:
  // `transfer`: the time of a value or gradient from one rank to another. Keeps a reference to the schedule's ranks of stages.
  Ends(const PipelineSchedule& schedule, double transfer);

  // Returns from when on a task could start on its rank, because what it waits for (waits_of) is there. kNever: that is not known
  // yet.
  double ready(const Task& task) const;
  void add(const Task& task, double end);

 private:
  const PipelineSchedule& schedule_;
  double transfer_;
  std::vector<double> forward_, backward_;  // by PipelineSchedule::place; backward_: of B or I
};

}  // namespace zt::pipe
