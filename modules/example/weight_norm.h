// A pass and its action handler: reports the norm of the weights during training.
#pragma once

#include <functional>

#include "zt/execute/executor.h"
#include "zt/program/rank_program.h"

namespace zt::example {

struct WeightNormOptions {
  int64_t every = 1;                                                               // steps between two reports
  std::function<void(int64_t step, const std::string& unit, double norm)> report;  // called on every rank
};

// Inserts WEIGHT_NORM u after each STEP u. The action only reads: losses and weights keep the same bits.
class WeightNorm : public Pass {
 public:
  explicit WeightNorm(WeightNormOptions options);
  std::string name() const override { return "example.weight_norm"; }
  // This phase comes after the phase that shards units, because the norm of a sharded unit is a sum over ranks.
  Phase phase() const override { return Phase::reduction; }
  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord& coord) const override;
  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const override { return {{kind_, handler_}}; }

 private:
  KindId kind_;
  std::shared_ptr<ActionHandler> handler_;
};

}  // namespace zt::example
