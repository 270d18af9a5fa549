// The schedules of the literature, by name.
#pragma once

#include <string>
#include <vector>

#include "schedule.h"

namespace zt::pipe {

struct Shape {
  int ranks = 1, chunks = 1, micro_batches = 1;
};

struct Recipe {
  std::string name;
  int chunks = 1;             // that it has, or if it takes any number, the default
  bool takes_chunks = false;  // any number of chunks
  PipelineSchedule (*make)(const Shape&) = nullptr;
  int (*needed_micro_batches)(const Shape&) = nullptr;  // at least those of the shape; null: any number will do
};
// Returns all recipes, sorted by name.
const std::vector<Recipe>& recipes();
// Throws Misuse, with the nearest name, if there is none.
const Recipe& find_recipe(const std::string& name);

// Returns the schedule of that name. `chunks` 0 means the recipe's. A recipe that needs more micro-batches than there are, or a
// multiple, is given virtual ones, which are dropped from its lists. Throws Misuse for an unknown name, for numbers below 1, and
// for chunks that the recipe does not have.
PipelineSchedule make_schedule(const std::string& name, Shape shape);

// Returns the forwards of a schedule for `micro_batches` micro-batches, for evaluation and generation: each rank takes the
// earliest micro-batch that is ready, at its last stage first.
PipelineSchedule forwards_only(const PipelineSchedule& schedule, int micro_batches);

// The recipes, each for numbers of micro-batches that it can use. The files name the papers.
PipelineSchedule one_f_one_b(const Shape& shape);
PipelineSchedule interleaved(const Shape& shape);
PipelineSchedule breadth_first(const Shape& shape);
PipelineSchedule zb_h1(const Shape& shape);
PipelineSchedule zb_h2(const Shape& shape);
PipelineSchedule zb_v(const Shape& shape);
PipelineSchedule interleaved_zb(const Shape& shape);
PipelineSchedule dualpipe_v(const Shape& shape);
PipelineSchedule v_half(const Shape& shape);
PipelineSchedule v_min(const Shape& shape);

}  // namespace zt::pipe
