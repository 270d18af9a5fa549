// A pipeline schedule as plain data: which rank works on which stage and micro-batch, in which order.
//
// A model is cut into stages, which are numbered along the model. With `chunks` stages per rank there are ranks * chunks stages.
// A task is the forward, the backward or a half of the backward of one stage for one micro-batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/object.h"

namespace zt::pipe {

enum class TaskKind : uint8_t {
  forward,      // F
  backward,     // B: I and W at once
  input_grad,   // I: backward for the inputs
  weight_grad,  // W: backward for the weights
};
char letter_of(TaskKind kind);

struct Task {
  TaskKind kind = TaskKind::forward;
  int stage = 0, micro_batch = 0;
  auto operator<=>(const Task&) const = default;
};
// Returns "0F3": stage, letter and micro-batch.
std::string text_of(const Task& task);
// Returns the task of a text such as "0F3". Throws Misuse, with `where` in front, for another text.
Task parse_task(const std::string& text, const std::string& where);

// The tasks that a task waits for, of the same micro-batch.
struct Waits {
  std::optional<Task> own;       // of the same stage: the forward for B and I, the I for W
  std::optional<Task> received;  // of a neighbour, whose result it uses: the forward before, or the B or I (here I) after it
};
Waits waits_of(const Task& task, int stages);

// One step of a rank: a task, or two that are overlapped: their layers take turns.
struct PipelineStep {
  Task task;
  std::optional<Task> beside = {};
  bool operator==(const PipelineStep&) const = default;
};
std::string text_of(const PipelineStep& step);  // "0F3" or "(0F3;7B1)"

// Calls visit(task) for the one or two tasks of a step.
template <class Visit>
void for_each_task(const PipelineStep& step, Visit visit) {
  visit(step.task);
  if (step.beside) visit(*step.beside);
}

// Which rank runs which stage.
enum class StagePlacement : uint8_t {
  loop,      // stage s runs on rank s % ranks
  v,         // two chunks: stage s < ranks runs on rank s, a later one on rank 2 * ranks - 1 - s
  by_stage,  // as listed
};

struct PipelineSchedule {
  StagePlacement placement = StagePlacement::loop;
  int micro_batches = 1;
  std::vector<int> rank_of_stage;                // by stage
  std::vector<std::vector<PipelineStep>> ranks;  // by rank: its steps in order

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  // Return the index of a stage and micro-batch in a table of all, and the size of the table.
  size_t place(int stage, int micro_batch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(micro_batches) + static_cast<size_t>(micro_batch);
  }
  size_t places() const { return place(stages(), 0); }
  // Returns the largest number of stages of a rank.
  int chunks() const;
  bool operator==(const PipelineSchedule&) const = default;
};

// Throws Misuse if a number is below 1 or above 2^20, or if stages * micro_batches is above 2^26. `stages`: of all ranks. Call it
// before anything of that size is allocated.
void check_size(int ranks, int64_t stages, int64_t micro_batches);

// Returns a schedule without steps. Throws Misuse as check_size, and if the placement is v and chunks is not 2.
PipelineSchedule empty_schedule(StagePlacement placement, int ranks, int chunks, int micro_batches);
// The same with the rank of each stage.
PipelineSchedule empty_schedule(std::vector<int> rank_of_stage, int ranks, int micro_batches);

// Returns the ranks of `chunks` stages each. For StagePlacement::by_stage there is no rule: throws Misuse.
std::vector<int> place_stages(StagePlacement placement, int ranks, int chunks);

}  // namespace zt::pipe

namespace zt {
ZT_OBJECT(pipe::PipelineSchedule)
}
