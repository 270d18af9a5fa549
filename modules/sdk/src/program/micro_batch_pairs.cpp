#include "zt/program/micro_batch_pairs.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt {

namespace {

using Actions = std::vector<Action>;

// The actions of a program, with those of each micro-batch apart.
struct ActionParts {
  Actions before, after;               // the actions without a micro-batch
  std::vector<Actions> micro_batches;  // in ascending order
};

ActionParts parts_of(Actions actions, int micro_batches) {
  ActionParts parts;
  parts.micro_batches.resize(static_cast<size_t>(micro_batches));
  int latest = -1;
  for (Action& action : actions) {
    const int micro_batch = action.micro_batch;
    const bool is_between = micro_batch < 0 && latest >= 0 && latest + 1 < micro_batches;
    const bool is_late = micro_batch >= 0 && (micro_batch < latest || !parts.after.empty());
    if (is_between || is_late)
      misuse(
          "pair_micro_batches: '{}' is where micro-batches do not run one after the other. Apply this pass first; in a pipeline, a schedule "
          "with overlapped pairs, such as dualpipe_v, does the same",
          action_text(action));
    if (micro_batch >= 0) {
      latest = micro_batch;
      parts.micro_batches.at(static_cast<size_t>(micro_batch)).push_back(std::move(action));
    } else {
      (latest < 0 ? parts.before : parts.after).push_back(std::move(action));
    }
  }
  return parts;
}

class MicroBatchPairs : public Pass {
 public:
  std::string name() const override { return "pair_micro_batches"; }
  Phase phase() const override { return Phase::compute; }
  std::optional<std::vector<std::string>> differs_along() const override { return std::vector<std::string>{}; }

  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord&) const override {
    const bool has_exchanges = std::ranges::any_of(model.positions, &PositionInfo::exchanges);
    if (!has_exchanges || program.micro_batches == 1) return program;
    const Kinds& kinds = Kinds::get();
    const auto ends_turn = [&](const Action& action) {
      return model.positions.at(static_cast<size_t>(action.target)).exchanges && action.kind != kinds.weight_grad;
    };
    ActionParts parts = parts_of(std::move(program.actions), program.micro_batches);
    program.actions = std::move(parts.before);
    parts.micro_batches.resize(parts.micro_batches.size() + parts.micro_batches.size() % 2);
    for (size_t pair = 0; pair < parts.micro_batches.size(); pair += 2) {
      const Actions merged = take_turns(parts.micro_batches[pair], parts.micro_batches[pair + 1], ends_turn);
      program.actions.insert(program.actions.end(), merged.begin(), merged.end());
    }
    program.actions.insert(program.actions.end(), parts.after.begin(), parts.after.end());
    return program;
  }
};

}  // namespace

std::shared_ptr<Pass> make_micro_batch_pairs() {
  return std::make_shared<MicroBatchPairs>();
}

}  // namespace zt
