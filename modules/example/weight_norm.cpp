#include "weight_norm.h"

#include <ATen/ATen.h>

#include <cmath>

namespace zt::example {

namespace {

class Handler : public ActionHandler {
 public:
  explicit Handler(WeightNormOptions options) : options_(std::move(options)) {}

  Work start(const Action& action, StepState& state) override {
    if (state.step % options_.every != 0) return {};  // the same decision on every rank, because the sum is a collective
    // The sum over the shard that this rank owns; padding is zero.
    at::Tensor sum = state.units[action.target].master.to(at::kDouble).square().sum().reshape({1});
    if (!action.axes().empty()) state.links->comm(action.axes()).all_reduce(sum, sum).wait();
    options_.report(state.step, state.model->units[action.target].name, std::sqrt(sum.item<double>()));
    return {};
  }

 private:
  WeightNormOptions options_;
};

// Registers the kind for the executor and the verifier: its target is a unit, and it reads the unit's master parameters.
KindId weight_norm_kind() {
  return register_kind({.name = "WEIGHT_NORM",
                        .target = Index::unit,
                        .has_micro_batch = false,
                        .doc = "report the norm of a unit's weights",
                        .resources = [](const Action& action, const ModelInfo&) {
                          return Resources{.reads = {{resource::master, action.target}}, .writes = {}};
                        }});
}

}  // namespace

WeightNorm::WeightNorm(WeightNormOptions options)
    : kind_(weight_norm_kind()), handler_(std::make_shared<Handler>(std::move(options))) {}

RankProgram WeightNorm::apply(RankProgram program, const ModelInfo&, const Coord&) const {
  std::vector<Action> actions;
  for (const Action& action : program.actions) {
    actions.push_back(action);
    if (action.kind != Kinds::get().step) continue;
    for (const int unit : action.units()) {
      Action norm{.kind = kind_, .target = unit};
      const auto& axes = program.units[unit].shard_axes;
      if (!axes.empty()) norm.set_axes(axes);
      actions.push_back(std::move(norm));
    }
  }
  program.actions = std::move(actions);
  return program;
}

}  // namespace zt::example
