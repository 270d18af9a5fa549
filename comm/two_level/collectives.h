// The collectives of the two-level backend, as steps on its communicators. Shapes and in-place rules: zt/comm/comm.h. Each
// function runs one blocking operation on one checked tensor or pair of tensors. Errors: Fault, Aborted.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "core/operation.h"
#include "queue/staging.h"
#include "queue/wait_policy.h"
#include "two_level/levels.h"

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

// Returns elements [begin, begin + count) as a flat tensor, which keeps `whole` alive: an abandoned step may still write to it.
at::Tensor flat_part(const at::Tensor& whole, int64_t begin, int64_t count);
// Returns scratch memory. Earlier contents are lost. If an operation fails, the backend keeps the memory for ever, because other
// ranks may still read it.
at::Tensor scratch(const LevelSite& site, int64_t count, at::ScalarType dtype);

// These three require tensors of at least one element.
void all_reduce(const LevelSite& site, const Operation& operation);
void reduce_scatter(const LevelSite& site, const Operation& operation);
void all_gather(const LevelSite& site, const Operation& operation);
// Also without elements: a rank does not know how many the others have.
void all_to_all(const LevelSite& site, const Operation& operation);
// Runs any other operation on the communicator over all ranks.
void run_flat(const LevelSite& site, const Operation& operation);

}  // namespace zt::comm
