#include "rank_writer.h"

#include <algorithm>

namespace zt::pipe {

RankWriter::RankWriter(PipelineSchedule& schedule, int rank)
    : schedule_(schedule),
      steps_(schedule.ranks[static_cast<size_t>(rank)]),
      forwards_(static_cast<size_t>(schedule.stages()), 0),
      backwards_(static_cast<size_t>(schedule.stages()), 0) {}

std::optional<Task> RankWriter::take(TaskKind kind, int stage) {
  int& next = (kind == TaskKind::forward ? forwards_ : backwards_)[static_cast<size_t>(stage)];
  if (next == schedule_.micro_batches) return std::nullopt;
  return Task{kind, stage, next++};
}

void RankWriter::add(const std::optional<Task>& task) {
  if (task) steps_.push_back({*task});
}

void RankWriter::input_grad(int stage) {
  const auto task = take(TaskKind::input_grad, stage);
  add(task);
  if (task) weights_.push_back({TaskKind::weight_grad, stage, task->micro_batch});
}

void RankWriter::weight_grad() {
  if (weights_.empty()) return;
  add(weights_.front());
  weights_.pop_front();
}

void RankWriter::weight_grad(int stage) {
  const auto oldest = std::ranges::find(weights_, stage, &Task::stage);
  if (oldest == weights_.end()) return;
  add(*oldest);
  weights_.erase(oldest);
}

void RankWriter::all_weight_grads() {
  while (!weights_.empty()) weight_grad();
}

void RankWriter::overlapped(int forward_stage, int backward_stage) {
  const auto forward = take(TaskKind::forward, forward_stage), backward = take(TaskKind::backward, backward_stage);
  if (forward && backward) steps_.push_back({*forward, backward});
  else add(forward ? forward : backward);
}

}  // namespace zt::pipe
