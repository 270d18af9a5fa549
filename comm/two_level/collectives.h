// The collectives of the two-level backend, as steps on its communicators. Shapes and in-place rules: zt/comm/comm.h. Each
// function runs one blocking operation on one checked tensor or pair of tensors. Errors: Fault, Aborted.
#pragma once

#include <functional>

#include "core/operation.h"
#include "messages/algorithms.h"
#include "two_level/two_level_backend.h"

namespace zt::comm {

// The communicators, wait policy and scratch memory of an operation. A rank's place is its index on its node.
struct LevelSite {
  const Levels& levels;
  WaitPolicy& policy;
  Staging& scratch;
  SumOrder order;

  int place() const { return levels.inside->rank(); }
  int places() const { return levels.inside->size(); }
  int node() const { return levels.across->rank(); }
  int nodes() const { return levels.across->size(); }

  // Calls `start`, which makes one call on a level. Returns when that operation is done.
  void step(const std::function<Work(Async)>& start) const;
};

// These three require tensors of at least one element.
void all_reduce(const LevelSite& site, const Operation& operation);
void reduce_scatter(const LevelSite& site, const Operation& operation);
void all_gather(const LevelSite& site, const Operation& operation);
// Runs any operation on the communicator over all ranks.
void run_flat(const LevelSite& site, const Operation& operation);

}  // namespace zt::comm
