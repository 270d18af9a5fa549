#include "recipes.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt::pipe {

namespace {

// Removes the tasks of micro-batches from `count` on.
void drop_virtual(PipelineSchedule& schedule, int count) {
  const auto is_virtual = [count](const Task& task) { return task.micro_batch >= count; };
  for (auto& steps : schedule.ranks) {
    for (PipelineStep& step : steps) {
      if (step.beside && is_virtual(*step.beside)) step.beside.reset();
      if (step.beside && is_virtual(step.task)) {
        step.task = *step.beside;
        step.beside.reset();
      }
    }
    std::erase_if(steps, [&](const PipelineStep& step) { return is_virtual(step.task); });
  }
  schedule.micro_batches = count;
}

int multiple_of_ranks(const Shape& shape) {
  return (shape.micro_batches + shape.ranks - 1) / shape.ranks * shape.ranks;
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all{
      {"breadth_first", 2, true, breadth_first},
      {"dualpipe_v", 2, false, dualpipe_v, [](const Shape& shape) { return std::max(shape.micro_batches, 2 * shape.ranks); }},
      {"gpipe", 1, false, breadth_first},
      {"interleaved", 2, true, interleaved, multiple_of_ranks},
      {"interleaved_zb", 2, true, interleaved_zb, multiple_of_ranks},
      {"one_f_one_b", 1, false, one_f_one_b},
      {"v_half", 2, false, v_half},
      {"v_min", 2, false, v_min},
      {"zb_h1", 1, false, zb_h1},
      {"zb_h2", 1, false, zb_h2},
      {"zb_v", 2, false, zb_v, [](const Shape& shape) { return std::max(shape.micro_batches, 2 * shape.ranks - 1); }},
  };
  return all;
}

const Recipe& find_recipe(const std::string& name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  misuse("there is no pipeline schedule '{}'{}", name, suggest(name, names));
}

PipelineSchedule make_schedule(const std::string& name, Shape shape) {
  const Recipe& recipe = find_recipe(name);
  if (shape.chunks == 0) shape.chunks = recipe.chunks;
  empty_schedule(StagePlacement::loop, shape.ranks, shape.chunks, shape.micro_batches);  // checks the numbers
  if (!recipe.takes_chunks && shape.chunks != recipe.chunks)
    misuse("the schedule '{}' has {} chunk{} per rank, got {}: leave chunks out, or take 'interleaved'", name, recipe.chunks,
           recipe.chunks == 1 ? "" : "s", shape.chunks);
  const int wanted = shape.micro_batches;
  if (recipe.needed_micro_batches) shape.micro_batches = recipe.needed_micro_batches(shape);
  PipelineSchedule schedule = recipe.make(shape);
  drop_virtual(schedule, wanted);
  return schedule;
}

}  // namespace zt::pipe
