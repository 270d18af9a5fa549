#include <set>

#include "verify.h"

namespace zt::verifier {

namespace {

// The check of one group of ranks, which together run all positions.
class StageCheck {
 public:
  StageCheck(const ModelInfo& model, std::vector<int> ranks, const std::vector<const RankProgram*>& programs, Findings& findings)
      : model_(model), ranks_(std::move(ranks)), programs_(programs), findings_(findings) {
    for (const int rank : ranks_) runs_.push_back(positions_run(*programs_[rank], model_));
  }

  void run() {
    for (int p = 0; p < static_cast<int>(model_.positions.size()); ++p) check_position(p);
    for (int unit = 0; unit < static_cast<int>(model_.units.size()); ++unit) check_unit(unit);
  }

 private:
  template <class... Args>
  void say(int rank, int step, fmt::format_string<Args...> format, Args&&... args) {
    findings_.push_back({rank, step, fmt::format(format, std::forward<Args>(args)...)});
  }

  void check_position(int position) {
    std::vector<int> running;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (runs_[i][position]) running.push_back(ranks_[i]);
    }
    const std::string& name = model_.positions[position].name;
    if (running.empty()) {
      say(ranks_.front(), -1, "position {} ('{}') is run by none of the ranks {}: give it to one of them", position, name,
          fmt::join(ranks_, ", "));
    } else if (running.size() > 1) {
      say(running[1], -1,
          "position {} ('{}') is run by the ranks {}, of which each runs it for the same samples: give it to one of them",
          position, name, fmt::join(running, ", "));
    }
  }

  void check_unit(int unit) {
    std::vector<int> holders;
    for (const int rank : ranks_) {
      if (programs_[rank]->units[unit].held) holders.push_back(rank);
    }
    const UnitInfo& info = model_.units[unit];
    if (holders.empty())
      return say(ranks_.front(), -1, "unit {} ('{}') is held by none of the ranks {}", unit, info.name, fmt::join(ranks_, ", "));
    const bool is_summed = info.trainable && programs_[holders.front()]->mode == Mode::train;
    if (holders.size() == 1 || !is_summed) return;
    for (const int rank : holders) check_tie(rank, unit);
  }

  // Each rank has the gradient of its own uses only. They must be added before anything else reads the gradient.
  void check_tie(int rank, int unit) {
    const RankProgram& program = *programs_[rank];
    const auto touches = [&](const std::vector<Resource>& resources) {
      return std::ranges::any_of(
          resources, [&](const Resource& resource) { return resource.type == resource::grad && resource.index == unit; });
    };
    int tie = -1;
    for (int step = 0; step < static_cast<int>(program.actions.size()); ++step) {
      const Action& action = program.actions[step];
      if (action.kind == Kinds::get().reduce_tie && action.target == unit) {
        if (tie >= 0) say(rank, step, "it repeats an earlier REDUCE_TIE of the unit: remove one");
        tie = step;
        continue;
      }
      const Resources declared = resources_of(action, model_);
      if (tie < 0 && touches(declared.reads)) {
        return say(
            rank, step,
            "unit {} ('{}') is tied over several ranks, and no REDUCE_TIE {} comes before: it would see the gradient of this "
            "rank's uses only",
            unit, model_.units[unit].name, unit);
      }
      if (tie >= 0 && role_of(action) == Role::compute && touches(declared.writes))
        say(rank, step, "it adds to a gradient after its REDUCE_TIE: put that after the last backward");
    }
  }

  const ModelInfo& model_;
  std::vector<int> ranks_;
  const std::vector<const RankProgram*>& programs_;
  Findings& findings_;
  std::vector<std::vector<bool>> runs_;  // by rank of the group, then by position
};

}  // namespace

Findings check_stages(const ModelInfo& model, const MeshShape& mesh, const std::vector<const RankProgram*>& programs) {
  Findings findings;
  const auto& split = programs.front()->split_axes;
  if (split.empty()) return findings;
  std::set<std::vector<const RankProgram*>> seen;  // groups with the same programs are checked once
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const std::vector<int> group = mesh.group(rank, split);
    if (group.front() != rank) continue;
    std::vector<const RankProgram*> of_group;
    for (const int member : group) of_group.push_back(programs[member]);
    if (seen.insert(of_group).second) StageCheck(model, group, programs, findings).run();
  }
  return findings;
}

}  // namespace zt::verifier
