#include "split.h"

#include <algorithm>

#include "lowering.h"
#include "schedule/check.h"
#include "schedule/recipes.h"
#include "transfers.h"
#include "zt/base/error.h"

namespace zt::pipe {

namespace {

class SplitPass : public Pass {
 public:
  explicit SplitPass(SplitOptions options) : options_(std::move(options)) {}
  const SplitOptions& options() const { return options_; }
  std::string name() const override { return "pipe.split"; }
  std::string summary() const override { return "pipe.split " + (options_.name.empty() ? "own schedule" : options_.name); }
  Phase phase() const override { return Phase::structure; }
  std::shared_ptr<Mesh> mesh() const override { return std::const_pointer_cast<Mesh>(options_.axis->mesh.lock()); }
  std::optional<std::vector<std::string>> differs_along() const override { return options_.axis->names; }
  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const override { return transfer_handlers(); }

  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord& coord) const override {
    check_unchanged(program, model);
    const PipelineSchedule schedule = schedule_for(program);
    const Partition partition = make_partition(options_.partition, model, schedule.stages());
    const Cut cut{model, partition, options_.axis->names};
    const int rank = coord.index(options_.axis->names);
    program.split_axes = options_.axis->names;
    const std::vector<int> holders = count_holders(model, partition, schedule);
    for (size_t unit = 0; unit < program.units.size(); ++unit)
      program.units[unit].held = is_held(model.units[unit], partition, schedule, rank);
    replace_layers(program, lower(schedule, cut, program.mode, rank));
    const std::vector<bool> runs = positions_run(program, model);
    std::erase_if(program.actions, [&](const Action& action) {
      if (action.kind == Kinds::get().update) return !runs[static_cast<size_t>(action.target)];
      return action.kind == Kinds::get().step && !program.units[static_cast<size_t>(action.target)].held;
    });
    span_axis(program);
    if (program.mode == Mode::train) insert_ties(program, model, holders);
    return program;
  }

 private:
  // The layers must still be those of base_program: the pass replaces their order by its own.
  static void check_unchanged(const RankProgram& program, const ModelInfo& model) {
    if (!program.split_axes.empty())
      misuse("pipe.split: the layers are spread over axis '{}' already: apply it once", fmt::join(program.split_axes, "', '"));
    const auto layers = [](const RankProgram& of) {
      std::vector<const Action*> actions;
      for (const Action& action : of.actions) {
        if (role_of(action) == Role::compute) actions.push_back(&action);
      }
      return actions;
    };
    const RankProgram base = base_program(model, program.mode, program.micro_batches);
    const auto given = layers(program), wanted = layers(base);
    const bool is_unchanged = std::ranges::equal(given, wanted, [](const Action* a, const Action* b) {
      const bool are_plain = a->attrs.empty() && b->attrs.empty();
      return a->kind == b->kind && a->target == b->target && a->micro_batch == b->micro_batch &&
             (are_plain || action_text(*a) == action_text(*b));
    });
    if (!is_unchanged) misuse("pipe.split: another pass or with_actions has changed the order of layers: apply pipe.split first");
  }

  PipelineSchedule schedule_for(const RankProgram& program) const {
    const int ranks = options_.axis->size;
    const auto build = [&](int micro_batches) { return make_schedule(options_.name, {ranks, options_.chunks, micro_batches}); };
    if (program.mode != Mode::train) {
      const PipelineSchedule like = options_.schedule ? *options_.schedule : build(1);
      check_ranks(like);
      return forwards_only(like, program.micro_batches);
    }
    if (!options_.schedule) return build(program.micro_batches);
    check_ranks(*options_.schedule);
    if (options_.schedule->micro_batches != program.micro_batches)
      misuse("pipe.split: the schedule is for {} micro-batches, and the program has {}: make it for as many",
             options_.schedule->micro_batches, program.micro_batches);
    return *options_.schedule;
  }

  void check_ranks(const PipelineSchedule& schedule) const {
    if (static_cast<int>(schedule.ranks.size()) != options_.axis->size)
      misuse("pipe.split: the schedule is for {} ranks, and axis '{}' has {}: make it for ranks = {}", schedule.ranks.size(),
             options_.axis->name, options_.axis->size, options_.axis->size);
  }

  static bool is_held(const UnitInfo& unit, const Partition& partition, const PipelineSchedule& schedule, int rank) {
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      const auto s = static_cast<size_t>(stage);
      const auto is_in = [&](int position) { return position >= partition[s] && position < partition[s + 1]; };
      if (schedule.rank_of_stage[s] == rank && std::ranges::any_of(unit.positions, is_in)) return true;
    }
    return false;
  }

  // Returns, by unit, how many ranks hold it.
  static std::vector<int> count_holders(const ModelInfo& model, const Partition& partition, const PipelineSchedule& schedule) {
    std::vector<int> holders;
    for (const UnitInfo& unit : model.units) {
      int count = 0;
      for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank)
        count += is_held(unit, partition, schedule, rank) ? 1 : 0;
      holders.push_back(count);
    }
    return holders;
  }

  static void replace_layers(RankProgram& program, std::vector<Action> layers) {
    std::vector<Action> actions;
    for (Action& action : program.actions) {
      if (role_of(action) != Role::compute) {
        actions.push_back(std::move(action));
      } else if (!layers.empty()) {
        actions.insert(actions.end(), std::make_move_iterator(layers.begin()), std::make_move_iterator(layers.end()));
        layers.clear();
      }
    }
    program.actions = std::move(actions);
  }

  // COUNT and NORM sum over the stages, which have the same samples.
  void span_axis(RankProgram& program) const {
    const auto& names = options_.axis->names;
    for (Action& action : program.actions) {
      if (role_of(action) != Role::scalars) continue;
      const auto samples = action.sample_axes();
      auto axes = names;
      for (const std::string& axis : action.axes()) {
        if (std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
      }
      action.set_axes(axes);
      if (action.kind == Kinds::get().count) action.set_sample_axes(samples);
    }
  }

  // The gradient of a parameter that several ranks use is complete when each has done its part.
  void insert_ties(RankProgram& program, const ModelInfo& model, const std::vector<int>& holders) const {
    const auto& names = options_.axis->names;
    const auto norm = std::ranges::find(program.actions, Kinds::get().norm, &Action::kind);
    std::vector<Action> ties;
    for (size_t unit = 0; unit < holders.size(); ++unit) {
      if (holders[unit] < 2 || !program.units[unit].held || !model.units[unit].trainable) continue;
      ties.push_back({.kind = Kinds::get().reduce_tie, .target = static_cast<int32_t>(unit)});
      ties.back().set_axes(names);
    }
    program.actions.insert(norm, ties.begin(), ties.end());
  }

  SplitOptions options_;
};

}  // namespace

std::shared_ptr<Pass> make_split(SplitOptions options) {
  if (options.schedule) {
    require_correct(*options.schedule, "pipe.split: the schedule");
    if (options.chunks > 0) misuse("pipe.split: chunks is for a schedule given by name: this one has its own");
  } else {
    const Recipe& recipe = find_recipe(options.name);
    if (options.chunks > 0) make_schedule(recipe.name, {options.axis->size, options.chunks, 1});  // checks chunks
  }
  return std::make_shared<SplitPass>(std::move(options));
}

std::shared_ptr<Program> with_schedule(const Program& program, std::string name,
                                       std::shared_ptr<const PipelineSchedule> schedule) {
  for (const auto& pass : program.passes()) {
    const auto* split = dynamic_cast<const SplitPass*>(pass.get());
    if (!split) continue;
    SplitOptions options = split->options();
    options.name = std::move(name);
    options.schedule = std::move(schedule);
    options.chunks = 0;
    return program.replace(pass, make_split(std::move(options)));
  }
  misuse("the program has no pipeline, so it has no schedule: apply pipe.split first");
}

}  // namespace zt::pipe
