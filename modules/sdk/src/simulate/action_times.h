// The seconds that the actions of played ranks take.
#pragma once

#include <map>
#include <vector>

#include "plan/plan.h"
#include "play/player.h"
#include "zt/simulate/costs.h"

namespace zt {

// What is known of a played rank before its time is.
struct PlayedPart {
  RankUnits held;
  Rehearsal rehearsal;
};

// Measured times where there are some, else times from operations and bytes: the longer one of computation and memory, and for
// collectives over W ranks log2 W latencies and the bytes of ring algorithms.
class ActionTimes {
 public:
  // `parts`: by played rank. All arguments must outlive this.
  ActionTimes(const Plan& plan, const PlayedRanks& played, const std::vector<PlayedPart>& parts, const Costs& costs)
      : plan_(plan), played_(played), parts_(parts), costs_(costs) {}

  // Throws Misuse if the costs do not tell.
  ActionTime of(int played, int step) const;

 private:
  Cost cost_of_action(const Action& action, int played, int step) const;
  double compute_seconds(const Action& action, const Cost& cost) const;
  double transfer_seconds(const Action& action, int played, int step, const Cost& cost) const;
  const LinkSpeed& link(int rank, const std::vector<std::string>& axes) const;

  const Plan& plan_;
  const PlayedRanks& played_;
  const std::vector<PlayedPart>& parts_;
  const Costs& costs_;
  mutable std::map<std::pair<int, std::vector<std::string>>, const LinkSpeed*> links_;  // by rank and axes
};

}  // namespace zt
