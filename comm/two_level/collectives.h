// The collectives of the two-level backend, as steps on its communicators. Shapes and in-place rules: zt/comm/comm.h. Each
// function is one blocking operation on one tensor or pair of tensors, checked. Errors: Fault, Aborted.
#pragma once

#include <functional>

#include "core/operation.h"
#include "messages/algorithms.h"
#include "two_level/two_level_backend.h"

namespace zt::comm {

// What an operation works with.
struct LevelSite {
  const Levels& levels;
  WaitPolicy& policy;
  Staging& scratch;
  SumOrder order;

  int place() const { return levels.inside->rank(); }
  int places() const { return levels.inside->size(); }
  int node() const { return levels.across->rank(); }
  int nodes() const { return levels.across->size(); }

  // Runs one operation of a level: `start` calls it. Returns when it is done.
  void step(const std::function<Work(Async)>& start) const;
};

// Tensors of one element or more.
void all_reduce(const LevelSite& site, const Operation& operation);
void reduce_scatter(const LevelSite& site, const Operation& operation);
void all_gather(const LevelSite& site, const Operation& operation);
// Any operation, on the one communicator over all ranks.
void run_flat(const LevelSite& site, const Operation& operation);

}  // namespace zt::comm
