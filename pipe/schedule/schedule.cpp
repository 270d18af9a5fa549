#include "schedule.h"

#include <algorithm>
#include <charconv>

#include "zt/base/error.h"

namespace zt {
ZT_DEFINE_OBJECT(pipe::PipelineSchedule, "PipelineSchedule")
}

namespace zt::pipe {

namespace {

constexpr char kLetters[] = {'F', 'B', 'I', 'W'};

// Reads a number at the begin of `text` and removes it. Returns nullopt if there is none.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

}  // namespace

char letter_of(TaskKind kind) {
  return kLetters[static_cast<size_t>(kind)];
}

std::string text_of(const Task& task) {
  return fmt::format("{}{}{}", task.stage, letter_of(task.kind), task.micro_batch);
}

Task parse_task(const std::string& text, const std::string& where) {
  std::string_view rest = text;
  const auto stage = take_number(rest);
  const auto* letter = stage && !rest.empty() ? std::ranges::find(kLetters, rest.front()) : std::end(kLetters);
  if (letter != std::end(kLetters)) {
    rest.remove_prefix(1);
    const auto micro_batch = take_number(rest);
    if (micro_batch && rest.empty()) return {static_cast<TaskKind>(letter - kLetters), *stage, *micro_batch};
  }
  misuse("{}: '{}' is no task: give stage, letter (F, B, I or W) and micro-batch, such as 0F3", where, text);
}

Waits waits_of(const Task& task, int stages) {
  const auto [kind, stage, m] = task;
  if (kind == TaskKind::weight_grad) return {.own = Task{TaskKind::input_grad, stage, m}, .received = {}};
  if (kind == TaskKind::forward)
    return {.own = {}, .received = stage > 0 ? std::optional(Task{TaskKind::forward, stage - 1, m}) : std::nullopt};
  return {.own = Task{TaskKind::forward, stage, m},
          .received = stage + 1 < stages ? std::optional(Task{TaskKind::input_grad, stage + 1, m}) : std::nullopt};
}

std::string text_of(const PipelineStep& step) {
  return step.beside ? fmt::format("({};{})", text_of(step.task), text_of(*step.beside)) : text_of(step.task);
}

int PipelineSchedule::chunks() const {
  int most = 0;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
    most = std::max(most, static_cast<int>(std::ranges::count(rank_of_stage, rank)));
  return most;
}

std::vector<int> place_stages(StagePlacement placement, int ranks, int chunks) {
  if (placement == StagePlacement::by_stage) misuse("an explicit placement lists the rank of each stage");
  if (placement == StagePlacement::v && chunks != 2)
    misuse("a schedule of placement \"v\" has 2 chunks, got {}: each rank runs a stage of either half of the model", chunks);
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < ranks * chunks; ++stage) {
    const bool is_back = placement == StagePlacement::v && stage >= ranks;
    rank_of_stage.push_back(is_back ? 2 * ranks - 1 - stage : stage % ranks);
  }
  return rank_of_stage;
}

void check_size(int ranks, int64_t stages, int64_t micro_batches) {
  constexpr int64_t kMost = 1 << 20, kMostTasks = 1 << 26;
  const auto check = [&](const char* name, int64_t value) {
    if (value < 1 || value > kMost) misuse("a pipeline schedule of {} {}: give a number from 1 to {}", value, name, kMost);
  };
  check("ranks", ranks);
  check("stages", stages);
  check("micro-batches", micro_batches);
  if (stages * micro_batches > kMostTasks)
    misuse("a pipeline schedule of {} stages and {} micro-batches has {} forwards: at most {} are allowed, give fewer of either",
           stages, micro_batches, stages * micro_batches, kMostTasks);
}

PipelineSchedule empty_schedule(StagePlacement placement, int ranks, int chunks, int micro_batches) {
  if (ranks < 1 || chunks < 1) misuse("a pipeline schedule of {} ranks with {} stages each: both are at least 1", ranks, chunks);
  check_size(ranks, int64_t{ranks} * chunks, micro_batches);
  return {.placement = placement,
          .micro_batches = micro_batches,
          .rank_of_stage = place_stages(placement, ranks, chunks),
          .ranks = std::vector<std::vector<PipelineStep>>(static_cast<size_t>(ranks))};
}

PipelineSchedule empty_schedule(std::vector<int> rank_of_stage, int ranks, int micro_batches) {
  check_size(ranks, static_cast<int64_t>(rank_of_stage.size()), micro_batches);
  return {.placement = StagePlacement::by_stage,
          .micro_batches = micro_batches,
          .rank_of_stage = std::move(rank_of_stage),
          .ranks = std::vector<std::vector<PipelineStep>>(static_cast<size_t>(ranks))};
}

}  // namespace zt::pipe
