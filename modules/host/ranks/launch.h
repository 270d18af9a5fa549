// Starts the ranks of this process and waits for them.
#pragma once

#include <string>

#include "loading/paths.h"
#include "ranks/rank.h"
#include "zt/process/world.h"

namespace zt::host {

struct LaunchOptions {
  int processes = 0;      // number of ranks that mpirun is to start; 0: this process is a rank
  int threads = 0;        // number of ranks that run as threads of this process; 0: this process is one rank
  bool is_dry = false;    // World::dry
  bool is_plan = false;   // runs dry as rank `rank` of `ranks`; prints the plan of each kind of rank
  PlanRequest plan = {};  // what the plan shows, and how; without a descriptor
  int ranks = 1;
  int rank = 0;
  int ranks_per_node = 0;    // of a planned run; 0: not given
  std::string backend = {};  // backend of the planned run; empty: the default
};

// Runs `script` on all ranks of this process. Returns the exit status if all ranks succeeded; ends the process if one failed.
// Throws Misuse if the options do not fit how the process was started.
int launch(const Paths& paths, const Script& script, const LaunchOptions& options);

}  // namespace zt::host
