#include "zt/program/recompute.h"

#include "zt/base/error.h"

namespace zt {

namespace {

bool has_differentiable_input(const ModelInfo& model, const PositionInfo& position) {
  return std::any_of(position.inputs.begin(), position.inputs.end(),
                     [&](const Edge& edge) { return model.positions.at(edge.position).outputs.at(edge.output).differentiable; });
}

// Returns, by position, whether a later position reads it.
std::vector<bool> read_positions(const ModelInfo& model) {
  std::vector<bool> is_read(model.positions.size(), false);
  for (const PositionInfo& position : model.positions) {
    for (const Edge& edge : position.inputs) is_read.at(edge.position) = true;
  }
  return is_read;
}

class Recompute : public Pass {
 public:
  explicit Recompute(int every) : every_(every) {}
  std::string name() const override { return "recompute"; }
  Phase phase() const override { return Phase::compute; }
  std::optional<std::vector<std::string>> differs_along() const override { return std::vector<std::string>{}; }

  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord&) const override {
    if (program.mode != Mode::train) return program;
    const Kinds& kinds = Kinds::get();
    const std::vector<bool> is_chosen = choose(model);
    const auto applies_to = [&](const Action& action, KindId id) { return action.kind == id && is_chosen.at(action.target); };
    std::vector<Action> actions;
    for (Action& action : program.actions) {
      if (applies_to(action, kinds.forward)) {
        if (action.keep() != Keep::graph)
          misuse("recompute: '{}' already keeps no graph: apply this pass once", action_text(action));
        action.attrs["keep"] = "inputs";
      } else if (applies_to(action, kinds.backward) || applies_to(action, kinds.input_grad)) {
        actions.push_back({.kind = kinds.recompute, .target = action.target, .micro_batch = action.micro_batch});
      }
      actions.push_back(std::move(action));
    }
    program.actions = std::move(actions);
    return program;
  }

 private:
  std::vector<bool> choose(const ModelInfo& model) const {
    std::vector<bool> is_chosen = read_positions(model);
    int eligible = 0;
    for (size_t p = 0; p < is_chosen.size(); ++p) {
      const PositionInfo& position = model.positions[p];
      is_chosen[p] =
          is_chosen[p] && !position.units.empty() && has_differentiable_input(model, position) && ++eligible % every_ == 0;
    }
    return is_chosen;
  }

  int every_;
};

}  // namespace

std::shared_ptr<Pass> make_recompute(int every) {
  if (every < 1) misuse("recompute: every = {} makes no sense: 1 recomputes every layer, 2 every second", every);
  return std::make_shared<Recompute>(every);
}

}  // namespace zt
