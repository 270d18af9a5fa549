// Measures what the actions of a training step take.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "zt/execute/executor.h"
#include "zt/simulate/costs.h"

namespace zt {

// Runs steps action by action and notes the time of each. Nothing overlaps: an action that communicates begins when all ranks of
// its communicators have arrived, and is waited for.
class CostMeter {
 public:
  explicit CostMeter(const Plan& plan) : plan_(plan) {}

  // Runs the executor's program.
  void run(Executor& executor, StepState& state);
  // Takes part in the rest of the program after this rank's step has failed, as Executor::join_rest.
  void join(Executor& executor, StepState& state);
  // Returns the costs of the steps so far: for each action the median over the steps, on average over micro-batches and ranks.
  // `micro_batches`: of these steps, on device meta. Includes the rates that follow, for actions that were not measured.
  // Collective over the mesh.
  Costs costs(const std::vector<Batch>& micro_batches) const;

 private:
  struct Times {
    std::vector<double> compute, transfer;  // by step, in seconds
  };
  std::vector<Cost> work_of(const std::vector<Batch>& micro_batches) const;
  std::map<std::string, Costs::Measured> own_costs(const std::vector<Cost>& work) const;
  Hardware rates(const std::map<std::string, Costs::Measured>& measured, const std::vector<Cost>& work) const;

  const Plan& plan_;
  std::vector<Times> times_;  // by action
  int met_ = -1;              // the last action of this step at which the ranks have met
  bool overlaps_ = false;     // transfers run beside computation: not on the host, where both need the rank's core
};

}  // namespace zt
