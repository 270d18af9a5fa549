// Starts the ranks of this process and ends it when they are done.
#pragma once

#include <string>

#include "paths.h"
#include "rank.h"

namespace zt::host {

struct LaunchOptions {
  int threads = 0;       // ranks as threads of this process; 0: this process is one rank
  bool is_dry = false;   // World::dry
  bool is_plan = false;  // dry, as rank `rank` of `ranks`; prints what each kind of rank would do, as text or JSON
  bool is_json = false;
  int ranks = 1;
  int rank = 0;
  int ranks_per_node = 1;
  std::string backend = {};  // of the run that is planned; empty: the default
};

// Runs `script` on all ranks of this process; returns the exit status when all succeeded, and ends the process by itself
// otherwise. Misuse when the options do not fit how the process was started.
int launch(const Paths& paths, const Script& script, const LaunchOptions& options);

}  // namespace zt::host
