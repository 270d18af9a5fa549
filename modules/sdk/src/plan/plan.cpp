#include "plan.h"

#include <algorithm>
#include <limits>
#include <map>

#include "execute/counts.h"
#include "model/tensor_owners.h"
#include "plan/plan_links.h"
#include "plan/program_difference.h"
#include "plan/tensor_pass.h"
#include "zt/base/error.h"
#include "zt/base/hash.h"
#include "zt/gemm/gemm_choice.h"

namespace zt {

Communicator* control_of_all(const Program& program) {
  if (!program.mesh() || program.coord().shape.world_size() == 1) return nullptr;
  return program.mesh()->world()->control.get();
}

std::shared_ptr<const Plan> Plan::make(std::shared_ptr<const Program> program, std::shared_ptr<const Optimizer> optimizer,
                                       Mode untrained, CacheBytes cache) {
  if (optimizer) program = program->for_optimizer(optimizer);
  const std::shared_ptr<Plan> plan(
      new Plan(with_tensor_moves(std::move(program), optimizer), optimizer, untrained, std::move(cache)));
  const Coord coord = plan->program_->coord();
  for (const Mode mode : plan->modes()) {
    auto programs = plan->verified_programs(mode);
    plan->joined_.merge(zt::joined_axes(plan->model(), programs));
    plan->programs_[static_cast<size_t>(mode)] = programs[coord.rank];
    if (mode == plan->main_mode()) plan->of_ranks_ = std::move(programs);
  }
  plan->check_units_alike();
  // If the ranks multiplied by different providers, parameters that are equal would drift apart.
  if (Communicator* control = plan->world())
    check_gemm_choices_alike(control->all_gather_values(to_value(gemm_choice()), "makes a trainer"));
  for (const Action& action : plan->main().actions) {
    if (action.kind == Kinds::get().count) plan->data_axes_ = action.sample_axes();
  }
  run_together(plan->world(), [&] {  // a script's optimizer may fail to say what states it has
    plan->rank_units_ = plan->describe_rank(coord);
    plan->rank_ = plan->rank_plan(plan->main(), plan->rank_units_, coord);
  });
  return plan;
}

RankPlan Plan::rank_plan(const RankProgram& program, const RankUnits& held, const Coord& coord) const {
  RankPlan rank = plan_rank({model(), program, held, optimizer_states()}, coord);
  if (cache_) rank.held.emplace_back("cache", cache_(coord));
  return rank;
}

std::vector<Mode> Plan::modes() const {
  if (trains()) return {kModes.begin(), kModes.end()};
  return {untrained_, untrained_ == Mode::eval ? Mode::generate : Mode::eval};
}

const RankProgram& Plan::rank_program(Mode mode) const {
  const auto& program = programs_[static_cast<size_t>(mode)];
  if (!program) misuse("the trainer has no optimizer, so it has no training program: give zt.trainer an optimizer to train");
  return *program;
}

std::vector<std::string> Plan::state_names() const {
  return optimizer_ ? optimizer_->state_names() : std::vector<std::string>();
}

bool Plan::owns_tensors() const {
  return optimizer_ && needs_tensors(model(), *optimizer_);
}

std::vector<StateInfo> Plan::states_of(const ParamInfo& param) const {
  return optimizer_ ? optimizer_->states_of(param) : std::vector<StateInfo>();
}

namespace {

// Returns the refusals as lines, one for each kind: the first one, and how many more differ from it in names and numbers only.
std::string grouped_text(const std::vector<Refusal>& refusals) {
  const auto kind_of = [](const std::string& reason) {
    std::string kind;
    bool is_name = false;
    for (const char each : reason) {
      if (each == '\'') is_name = !is_name;
      if (!is_name && (each < '0' || each > '9')) kind += each;
    }
    return kind;
  };
  std::map<std::string, std::pair<size_t, std::string>> kinds;  // by kind: how many, and the first one's text
  std::vector<std::string> order;
  for (const Refusal& refusal : refusals) {
    const std::string kind = kind_of(refusal.reason);
    const auto [found, is_new] = kinds.try_emplace(kind, 0, refusal.text());
    ++found->second.first;
    if (is_new) order.push_back(kind);
  }
  std::string text;
  for (const std::string& kind : order) {
    const auto& [count, first] = kinds.at(kind);
    text += "\n  " + first + (count > 1 ? fmt::format(" (and {} more of this kind)", count - 1) : "");
  }
  return text;
}

}  // namespace

// Returns the programs of all ranks. Rank 0 verifies them; the other ranks compare what they would run with what rank 0 verified.
std::vector<std::shared_ptr<const RankProgram>> Plan::verified_programs(Mode mode) const {
  std::vector<std::shared_ptr<const RankProgram>> programs;
  run_together(world(), [&] { programs = program_->build_all(mode); });
  std::string hashes;
  std::map<const RankProgram*, std::string> of_distinct;  // most ranks share a program with others
  for (const auto& program : programs) {
    std::string& hash = of_distinct[program.get()];
    if (hash.empty()) hash = fmt::format("{:016x}", program->hash());
    hashes += hash;
  }
  const std::string fingerprint = fmt::format("{:016x}", stable_hash(hashes));
  std::string complaint;
  const Coord coord = program_->coord();
  if (coord.rank == 0) {
    std::vector<const RankProgram*> by_rank;
    for (const auto& program : programs) by_rank.push_back(program.get());
    complaint = grouped_text(verify(model(), coord.shape, by_rank, std::numeric_limits<size_t>::max()));
  }
  if (Communicator* control = world()) {
    const auto outcomes =
        control->all_gather_values(Value::Table{{"programs", fingerprint}, {"complaint", complaint}}, "makes a trainer");
    const auto text = [&](size_t rank, const char* key) {
      return *outcomes[rank].get_if<Value::Table>()->at(key).get_if<std::string>();
    };
    for (size_t rank = 1; rank < outcomes.size(); ++rank) {
      if (text(rank, "programs") == text(0, "programs")) continue;
      misuse("rank {} built other programs than rank 0: the script must make the same model and passes on every rank. {}", rank,
             first_difference(programs, static_cast<int>(rank), *control));
    }
    complaint = text(0, "complaint");
  }
  if (!complaint.empty())
    misuse("the program{} is refused:{}", mode == Mode::train ? "" : fmt::format(" of mode {}", word_of(mode)), complaint);
  return programs;
}

// All modes use the same buffers.
void Plan::check_units_alike() const {
  static constexpr const char* kNames[] = {"training", "evaluation", "generation"};  // by Mode
  for (const Mode mode : modes()) {
    if (rank_program(mode).precision != main().precision)
      misuse("the {} program has parameters of {}, and that of {} of {}: all modes use the same buffers",
             kNames[static_cast<size_t>(main_mode())], main().precision.text(), kNames[static_cast<size_t>(mode)],
             rank_program(mode).precision.text());
    for (size_t unit = 0; unit < main().units.size(); ++unit) {
      if (rank_program(mode).units[unit] == main().units[unit]) continue;
      misuse(
          "the {} program holds unit '{}' in another way than the program of {} does: all modes use the same buffers. Where "
          "a training program was given whole, its 'unit' lines must be those of the passes: change the passes' options instead",
          kNames[static_cast<size_t>(main_mode())], model().units[unit].name, kNames[static_cast<size_t>(mode)]);
    }
  }
}

RankUnits Plan::describe_rank(const Coord& coord) const {
  const bool is_mine = coord.rank == program_->coord().rank;
  std::vector<std::shared_ptr<const RankProgram>> of_rank;
  for (const Mode mode : modes())
    of_rank.push_back(is_mine ? programs_[static_cast<size_t>(mode)]
                              : std::make_shared<const RankProgram>(program_->build(mode, coord)));
  std::vector<const RankProgram*> programs;
  for (const auto& each : of_rank) programs.push_back(each.get());
  RankUnits held = describe_units(model(), programs, coord, optimizer_.get());
  set_holders(held.units, coord);
  return held;
}

// Finds out which ranks along the split axes hold each unit.
void Plan::set_holders(std::vector<Unit>& units, const Coord& coord) const {
  const auto& split = of_ranks_[coord.rank]->split_axes;
  if (split.empty()) return;
  const std::vector<int> group = coord.shape.group(coord.rank, split);
  std::map<const RankProgram*, std::vector<bool>> runs;
  const auto runs_of = [&](const std::shared_ptr<const RankProgram>& program) -> const std::vector<bool>& {
    const auto [known, is_new] = runs.try_emplace(program.get());
    if (is_new) known->second = positions_run(*program, model());
    return known->second;
  };
  for (Unit& unit : units) {
    unit.holders.clear();
    for (size_t member = 0; member < group.size(); ++member) {
      if (group[member] == coord.rank) unit.holder = static_cast<int>(unit.holders.size());
      if (of_ranks_[group[member]]->units[unit.index].held) unit.holders.push_back(static_cast<int>(member));
    }
    if (unit.holders.size() < 2) continue;
    for (const int holder : unit.holders) {
      unit.uses.emplace_back();
      for (const int position : model().units[unit.index].positions) {
        if (runs_of(of_ranks_[group[holder]])[position]) unit.uses.back().push_back(position);
      }
    }
  }
}

int Plan::data_ranks() const {
  return program_->coord().size(data_axes_);
}

int64_t Plan::first_sample(int64_t samples) const {
  return program_->coord().index(data_axes_) * samples;
}

AxisLink Plan::link(const std::vector<std::string>& axes) const {
  return program_->mesh() ? program_->mesh()->link(axes) : AxisLink{};
}

RankPlace Plan::place() const {
  return place_of(program_->coord());
}

RankPlace Plan::place_of(const Coord& coord) const {
  const auto& tokens = model().tokens;
  const auto token_axes = tokens ? std::vector<std::string>{tokens->axis} : std::vector<std::string>();
  return {coord, data_axes_, main().split_axes, token_axes};
}

World Plan::world_place() const {
  return {.rank = program_->coord().rank, .size = program_->coord().shape.world_size(), .threads = {}};
}

std::vector<Batch> Plan::cut(const StepBatch& batch) const {
  return on_meta(batch.cut(program_->micro_batches(main_mode())));
}

// A layer communicates over single axes, whose communicators are there. The shapes of values are those of the whole model, if one
// of the ranks receives some.
RehearsalInputs Plan::inputs(const std::vector<Batch>& micro_batches, const Coord& coord) const {
  const auto links = [this](const Coord& of_rank) {
    return std::make_shared<const MeshLinks>(program_->mesh(), place_of(of_rank), LinkNeeds{});
  };
  RehearsalInputs inputs{program_->model(), model(), links, micro_batches};
  const auto receives = [](const std::shared_ptr<const RankProgram>& program) {
    return std::ranges::any_of(program->actions, [](const Action& a) { return role_of(a) == Role::transfer; });
  };
  if (std::ranges::any_of(of_ranks_, receives)) inputs.shapes = value_shapes(inputs, main(), coord);
  return inputs;
}

}  // namespace zt
