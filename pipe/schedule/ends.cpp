#include "ends.h"

#include <algorithm>

namespace zt::pipe {

Ends::Ends(const PipelineSchedule& schedule, double transfer)
    : schedule_(schedule), transfer_(transfer), forward_(schedule.places(), kNever), backward_(schedule.places(), kNever) {}

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

}  // namespace zt::pipe
