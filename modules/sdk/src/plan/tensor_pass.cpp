#include "tensor_pass.h"

#include <algorithm>

#include "model/build/unit_build.h"
#include "model/tensor_owners.h"

namespace zt {

namespace {

// Tensors of a unit are gathered while those of the unit before are updated.
class TensorPass : public Pass {
 public:
  explicit TensorPass(std::shared_ptr<const Optimizer> optimizer) : optimizer_(std::move(optimizer)) {}

  std::string name() const override { return "tensors of " + optimizer_->kind(); }
  Phase phase() const override { return Phase::overlap; }
  std::optional<std::vector<std::string>> differs_along() const override { return std::vector<std::string>{}; }

  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord& coord) const override {
    if (program.mode != Mode::train || has_moves(program)) return program;
    std::vector<Unit> units;
    for (size_t i = 0; i < program.units.size(); ++i)
      units.push_back(describe_unit(model, static_cast<int>(i), program.units[i], coord));
    assign_owners(model, *optimizer_, coord, units);
    insert_moves(program.actions, units, coord);
    return program;
  }

 private:
  static bool has_moves(const RankProgram& program) {
    return std::ranges::any_of(program.actions, [](const Action& a) { return a.kind == Kinds::get().scatter_tensors; });
  }

  static void insert_moves(std::vector<Action>& actions, const std::vector<Unit>& units, const Coord& coord) {
    const Kinds& kinds = Kinds::get();
    const auto move = [&](KindId kind, int unit) {
      Action action{.kind = kind, .target = unit};
      action.set_axes(units[static_cast<size_t>(unit)].owner_axes);
      return action;
    };
    std::vector<int> gathered;  // units in the order of their updates
    for (const Action& action : actions) {
      if (action.kind == kinds.step && action.number("part", 0) == 0 && units[static_cast<size_t>(action.target)].gathers_tensors)
        gathered.push_back(action.target);
    }
    size_t next = 0;
    std::vector<Action> result;
    for (Action& action : actions) {
      if (action.kind != kinds.step) {
        result.push_back(std::move(action));
        continue;
      }
      const Unit& unit = units[static_cast<size_t>(action.target)];
      const auto place = static_cast<size_t>(std::ranges::find(gathered, action.target) - gathered.begin());
      const size_t wanted = unit.gathers_tensors ? std::min(gathered.size(), place + 2) : next;
      for (; next < wanted; ++next) result.push_back(move(kinds.gather_tensors, gathered[next]));
      const bool is_last = action.number("part", 0) + 1 == action.number("parts", 1);
      if (unit.gathers_tensors) action.attrs["staged"] = true;
      result.push_back(std::move(action));
      if (is_last && coord.size(unit.owner_axes) > 1) result.push_back(move(kinds.scatter_tensors, unit.index));
    }
    actions = std::move(result);
  }

  std::shared_ptr<const Optimizer> optimizer_;
};

}  // namespace

std::shared_ptr<const Program> with_tensor_moves(std::shared_ptr<const Program> program,
                                                 std::shared_ptr<const Optimizer> optimizer) {
  if (!optimizer || !needs_tensors(program->info(), *optimizer)) return program;
  return program->apply(std::make_shared<TensorPass>(std::move(optimizer)));
}

}  // namespace zt
