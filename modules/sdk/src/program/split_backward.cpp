#include "zt/program/split_backward.h"

#include <algorithm>

namespace zt {

bool can_split_backward(const PositionInfo& position, const ModelInfo& model) {
  const bool has_weights = std::ranges::any_of(position.units, [&](int unit) { return model.units[unit].trainable; });
  return has_weights && position.losses.empty();
}

namespace {

class SplitBackward : public Pass {
 public:
  std::string name() const override { return "split_backward"; }
  Phase phase() const override { return Phase::compute; }
  std::optional<std::vector<std::string>> differs_along() const override { return std::vector<std::string>{}; }

  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord&) const override {
    const Kinds& kinds = Kinds::get();
    std::vector<Action> actions;
    for (Action& action : program.actions) {
      const bool splits = action.kind == kinds.backward && can_split_backward(model.positions.at(action.target), model);
      if (splits) action.kind = kinds.input_grad;
      actions.push_back(std::move(action));
      if (!splits) continue;
      actions.push_back(actions.back());
      actions.back().kind = kinds.weight_grad;
    }
    program.actions = std::move(actions);
    return program;
  }
};

}  // namespace

std::shared_ptr<Pass> make_split_backward() {
  return std::make_shared<SplitBackward>();
}

}  // namespace zt
