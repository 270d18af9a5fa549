// The seconds that the actions of played ranks take.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "play/player.h"
#include "simulate/link_times.h"
#include "zt/simulate/costs.h"

namespace zt {

// Returns the operations, bytes of memory and bytes sent of an action. A layer reads its parameters, and writes and reads once
// what it makes; a message has the bytes that were rehearsed; other actions have the cost of their kind.
Cost action_cost(const Action& action, const RehearsedAction& rehearsed, const CostBasis& basis);

// What is known of a played rank before its time is.
struct PlayedPart {
  // Of that rank with most operations among those that have other tokens of the same samples.
  RankUnits held;
  Rehearsal rehearsal;
  double mean_flops = 0;   // of these ranks, in a step, without layers that run again
  int64_t peak_bytes = 0;  // the most that one of them holds besides its buffers
  int peak_action = -1;    // where
};

// Measured times where there are some, else times from operations and bytes: those of computation and of memory, one after the
// other as the operators of a layer run, and those of links.
class ActionTimes {
 public:
  // `parts`: by played rank. All arguments must outlive this.
  ActionTimes(const Plan& plan, const PlayedRanks& played, const std::vector<PlayedPart>& parts, const Costs& costs)
      : plan_(plan), played_(played), parts_(parts), costs_(costs), links_(played.mesh, costs.hardware) {}

  // `call`: as in PlayOptions::time. Throws Misuse if the costs do not tell.
  ActionTime of(int played, int step, size_t call) const;

 private:
  Cost cost_of_action(const Action& action, int played, int step) const;
  double compute_seconds(const Action& action, const Cost& cost) const;
  double machine_seconds(const Action& action, const Cost& cost) const;
  LinkTime transfer_time(const Action& action, int played, int step, size_t call, const Cost& cost) const;
  LinkTime call_time(int played, int step, size_t call, const Cost& cost) const;

  const Plan& plan_;
  const PlayedRanks& played_;
  const std::vector<PlayedPart>& parts_;
  const Costs& costs_;
  LinkTimes links_;
};

}  // namespace zt
