// Finds out from the ranks' flight records why a run hangs or failed. A pure function.
#pragma once

#include <string>
#include <vector>

#include "flight.h"

namespace zt::comm {

struct Verdict {
  // Sentences, the gravest first: processes that are gone or stopped; ranks that called something else than the others; ranks
  // that wait, and the ranks that never came; ranks that wait for each other. Empty if no rank waits for another.
  std::vector<std::string> findings;
  // A process is gone or stopped, a rank called something else, or a rank has waited over a second for ranks that did not come.
  // Such a verdict is printed without being asked for.
  bool is_grave = false;

  std::string text() const;  // one line per finding
};

// flights: at most one per rank; some may be missing. The text names world ranks.
Verdict judge(const std::vector<Flight>& flights);

}  // namespace zt::comm
