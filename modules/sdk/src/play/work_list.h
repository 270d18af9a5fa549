// The works in flight of one played rank, and the resources that they hold.
#pragma once

#include <vector>

#include "program/conflict_table.h"
#include "zt/program/rank_program.h"

namespace zt {

// As in the executor: an action waits for the works in flight that conflict with it.
class WorkList {
 public:
  WorkList() = default;  // of a rank whose actions all wait at once
  WorkList(const RankProgram& program, const ModelInfo& model, const BufferOf& buffer_of);

  // Moves `now` to the time from which on nothing conflicts with the action. Returns false if that is not known yet.
  bool await_conflicts(int step, double& now);
  // As await_conflicts, for the works without resources, which no action waits for.
  bool await_unneeded(double& now);
  // Add a work of the action: one whose end is not known yet, of which they return the number, or one that ends at `end`.
  int add(int step);
  void add(int step, double end) { finish(add(step), end); }
  void finish(int work, double end);

 private:
  struct Work {
    int step = 0;
    bool is_known = false;
    double end = 0;
  };
  // Moves `now` to the end of the work, if that is later. Returns false if it is not known yet.
  bool await(int work, double& now) const;

  ConflictTable conflicts_;
  std::vector<Work> works_;
  std::vector<int> awaited_;   // of one call of await_conflicts
  std::vector<int> unneeded_;  // those without resources
};

}  // namespace zt
