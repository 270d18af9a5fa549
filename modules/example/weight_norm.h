// A pass and its action handler: watches how large the weights grow.
#pragma once

#include <functional>

#include "zt/execute/executor.h"
#include "zt/program/program.h"

namespace zt::example {

struct WeightNormOptions {
  int64_t every = 1;                                                               // steps between two reports
  std::function<void(int64_t step, const std::string& unit, double norm)> report;  // called on every rank
};

// Inserts WEIGHT_NORM u behind each STEP u. The action changes nothing: losses and weights stay the same in every bit.
class WeightNorm : public Pass {
 public:
  explicit WeightNorm(WeightNormOptions options);
  std::string name() const override { return "example.weight_norm"; }
  // Behind the phase in which units are sharded, because a sharded unit's norm is a sum over ranks.
  Phase phase() const override { return Phase::reduction; }
  Program apply(Program program, const ModelInfo& model, const Coord& coord) const override;
  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const override { return {{kind_, handler_}}; }

 private:
  KindId kind_;
  std::shared_ptr<ActionHandler> handler_;
};

}  // namespace zt::example
