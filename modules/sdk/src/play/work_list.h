// The works in flight of one played rank, and the resources that they hold.
#pragma once

#include <functional>
#include <vector>

#include "zt/program/program.h"

namespace zt {

// As in the executor: an action waits for the works in flight that conflict with it.
class WorkList {
 public:
  WorkList() = default;  // of a rank whose actions all wait at once
  // `buffer_of` maps resources that share a buffer to one; empty: none do.
  WorkList(const Program& program, const ModelInfo& model, const std::function<Resource(const Resource&)>& buffer_of);

  // Moves `now` to the time from which on nothing conflicts with the action. Returns false if that is not known yet.
  bool await_conflicts(int step, double& now);
  // As await_conflicts, for the works without resources, which no action waits for.
  bool await_unneeded(double& now);
  // Add a work of the action: one whose end is not known yet, of which they return the number, or one that ends at `end`.
  int add(int step);
  void add(int step, double end) { finish(add(step), end); }
  void finish(int work, double end) { works_[work] = {true, end}; }

 private:
  struct Touched {
    std::vector<int> read, written;
  };
  struct Work {
    bool is_known = false;
    double end = 0;
  };
  struct Holders {
    std::vector<int> writers, readers;  // numbers of works
  };
  bool await(const std::vector<int>& works, double& now) const;

  std::vector<Touched> touched_;  // by action
  std::vector<Holders> holders_;  // by resource
  std::vector<Work> works_;
  std::vector<int> unneeded_;
};

}  // namespace zt
