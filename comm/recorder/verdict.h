// Why a run stands still or fell, from what its ranks wrote down: a pure function.
#pragma once

#include <string>
#include <vector>

#include "flight.h"

namespace zt::comm {

struct Verdict {
  // In words, the gravest first: whose process is gone or stopped, who called something else than the others, who waits in what
  // and who never came, who waits in a circle. Empty: no rank waits for another.
  std::vector<std::string> findings;
  // Somebody is gone or stopped, called something else, or has waited a second for ranks that did not come: worth telling though
  // nobody asked.
  bool is_grave = false;

  std::string text() const;  // a line a finding
};

// flights: of different ranks; some may be missing. Ranks are world ranks.
Verdict judge(const std::vector<Flight>& flights);

}  // namespace zt::comm
