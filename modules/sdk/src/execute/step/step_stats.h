// What the layers of a step add up besides gradients, and what layers and reports make of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "execute/step/layer_table.h"
#include "execute/step/step_sums.h"
#include "zt/execute/executor.h"

namespace zt {

// Threads: the rank's thread only.
class StepStats : public StepSums {
 public:
  StepStats(const LayerTable& layers, const StepState& state);

  void begin();

  // Add what Context's functions of these names get. The first throws Misuse for a statistic that the layer's io does not declare
  // or that has another size. With `has_stats` false, bytes are for plans only.
  void add_named_stat(int position, int micro_batch, const std::string& name, const at::Tensor& values);
  void add_sent(int position, int micro_batch, const std::string& axis, int64_t bytes, Pattern pattern, bool has_stats);
  // Throws Misuse unless the layer's io declares the term.
  void check_loss(int position, const std::string& name, Per per) const;

  // Calls `start` of an exchange and returns its work. Takes the time of both if the layer has a statistic for it.
  Work timed(int position, const std::function<Work()>& start);
  // Adds the time of exchanges since the last call to their statistics.
  void add_exchange_seconds();
  // Returns the bytes that layers have noted as sent since the last call, by axis.
  std::map<std::string, SentBytes> take_sent() { return std::exchange(sent_, {}); }

  // Calls LayerExtras::update for the position's layer, once per step. `stats`: of all layers, as StepState has them.
  void update_layer(int position, const Stats& stats);
  // Returns what the layers' reports show of the statistics, under the names "LAYER.NAME".
  Stats report(const Stats& stats) const;

 private:
  int find(int position, const std::string& name) const;
  Stats of_layer(int position, const Stats& stats) const;

  const LayerTable& layers_;
  const StepState& state_;
  std::map<int, int64_t> exchange_ns_;     // by position of exchanges with the statistic `seconds`
  std::map<std::string, SentBytes> sent_;  // by axis
  std::set<int> updated_layers_;           // in this step
};

}  // namespace zt
