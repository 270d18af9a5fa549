#include "plan.h"

#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "execute/counts.h"
#include "plan/disagreement.h"
#include "zt/base/error.h"
#include "zt/base/hash.h"
#include "zt/gemm/gemm_choice.h"

namespace zt {

Communicator* control_of_all(const ProgramSpec& spec) {
  if (!spec.mesh() || spec.coord().shape.world_size() == 1) return nullptr;
  return spec.mesh()->world()->control.get();
}

std::shared_ptr<const Plan> Plan::make(std::shared_ptr<const ProgramSpec> spec, std::shared_ptr<const Optimizer> optimizer) {
  const std::shared_ptr<Plan> plan(new Plan(std::move(spec), std::move(optimizer)));
  const Coord coord = plan->spec_->coord();
  std::set<std::vector<std::string>> joined;
  for (const Mode mode : kModes) {
    auto programs = plan->verified_programs(mode);
    joined.merge(plan->joined_axes(programs));
    plan->programs_[static_cast<size_t>(mode)] = programs[coord.rank];
    if (mode == Mode::train) plan->training_ = std::move(programs);
  }
  plan->check_units_alike();
  plan->check_gemm_alike();
  const Program& training = plan->program(Mode::train);
  for (const Action& action : training.actions) {
    if (action.kind == Kinds::get().count) plan->data_axes_ = action.sample_axes();
  }
  plan->held_ = plan->describe_rank(coord);
  plan->rank_ = plan_rank(plan->model().info(), training, plan->held_, *plan->optimizer_, coord);
  // Communicators are made here, in the same order on all ranks, and not at their first use: making one is collective.
  if (plan->spec_->mesh()) {
    for (const auto& axes : joined) plan->axis(axes);
  }
  for (const Unit& unit : plan->held_.units) {
    if (unit.plan.held && unit.holders.size() > 1) plan->comm_of_holders(unit);
  }
  plan->make_channels();
  return plan;
}

// Returns the axes over which the programs of any rank communicate, or a trainer with these programs does between their runs.
std::set<std::vector<std::string>> Plan::joined_axes(const std::vector<std::shared_ptr<const Program>>& programs) const {
  auto joined = axes_of_work(programs);
  for (const auto& program : std::set(programs.begin(), programs.end())) {
    for (const Action& action : program->actions) {
      for (auto& axes : communicators_of(action, model().info())) joined.insert(std::move(axes));
    }
  }
  joined.erase(std::vector<std::string>());
  return joined;
}

// Returns the axes along which ranks have other samples, positions or elements, or communicate besides in COUNT and NORM, which
// run over all axes of a mesh.
std::set<std::vector<std::string>> Plan::axes_of_work(const std::vector<std::shared_ptr<const Program>>& programs) const {
  const ModelInfo& info = model().info();
  std::set<std::vector<std::string>> used;
  for (const auto& program : std::set(programs.begin(), programs.end())) {
    used.insert(program->split_axes);
    for (const UnitPlan& unit : program->units) used.merge(std::set{unit.shard_axes, unit.comm_axes()});
    for (const Action& action : program->actions) {
      if (action.kind == Kinds::get().count) used.insert(action.sample_axes());
      else if (action.kind != Kinds::get().norm)
        for (auto& axes : communicators_of(action, info)) used.insert(std::move(axes));
    }
  }
  for (const ParamInfo& param : info.params) used.insert(param.cut_axes());
  return used;
}

std::vector<std::string> Plan::idle_axes() const {
  if (!spec_->mesh()) return {};
  std::set<std::string> used;
  for (const auto& axes : axes_of_work(training_)) used.insert(axes.begin(), axes.end());
  std::vector<std::string> idle;
  const Coord coord = spec_->coord();
  for (const auto& [name, size] : coord.shape.axes()) {
    if (size > 1 && !used.contains(name)) idle.push_back(name);
  }
  return idle;
}

// Returns the refusals as lines, one for each kind: the first one, and how many more differ from it in names and numbers only.
static std::string grouped_text(const std::vector<Refusal>& refusals) {
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

// Returns the programs of all ranks. Rank 0 verifies them; the other ranks compare what they would run with what rank 0 verified.
std::vector<std::shared_ptr<const Program>> Plan::verified_programs(Mode mode) const {
  std::vector<std::shared_ptr<const Program>> programs;
  run_together(world(), [&] { programs = spec_->build_all(mode); });
  std::string hashes;
  for (const auto& program : programs) hashes += fmt::format("{:016x}", program->hash());
  const std::string fingerprint = fmt::format("{:016x}", stable_hash(hashes));
  std::string complaint;
  const Coord coord = spec_->coord();
  if (coord.rank == 0) {
    std::vector<const Program*> by_rank;
    for (const auto& program : programs) by_rank.push_back(program.get());
    complaint = grouped_text(verify(model().info(), coord.shape, by_rank, std::numeric_limits<size_t>::max()));
  }
  if (spec_->mesh() && coord.shape.world_size() > 1) {
    Communicator& control = *spec_->mesh()->world()->control;
    const auto outcomes = control.all_gather_values(Value::Table{{"programs", fingerprint}, {"complaint", complaint}});
    const auto text = [&](size_t rank, const char* key) {
      return *outcomes[rank].get_if<Value::Table>()->at(key).get_if<std::string>();
    };
    for (size_t rank = 1; rank < outcomes.size(); ++rank) {
      if (text(rank, "programs") == text(0, "programs")) continue;
      misuse("rank {} built other programs than rank 0: the script must make the same model and passes on every rank. {}", rank,
             first_difference(programs, static_cast<int>(rank), control));
    }
    complaint = text(0, "complaint");
  }
  if (!complaint.empty()) misuse("the program is refused:{}", complaint);
  return programs;
}

// All modes use the same buffers.
void Plan::check_units_alike() const {
  const Program& training = program(Mode::train);
  for (const Mode mode : {Mode::eval, Mode::generate}) {
    for (size_t unit = 0; unit < training.units.size(); ++unit) {
      if (program(mode).units[unit] == training.units[unit]) continue;
      misuse(
          "the training program holds unit '{}' in another way than the program of {} does: all modes use the same buffers. Where "
          "a training program was given whole, its 'unit' lines must be those of the passes: change the passes' options instead",
          model().info().units[unit].name, mode == Mode::eval ? "evaluation" : "generation");
    }
  }
}

// If the ranks multiplied by different providers, parameters that are equal would drift apart.
void Plan::check_gemm_alike() const {
  if (!spec_->mesh() || spec_->coord().shape.world_size() == 1) return;
  check_gemm_choices_alike(spec_->mesh()->world()->control->all_gather_values(to_value(gemm_choice())));
}

RankUnits Plan::describe_rank(const Coord& coord) const {
  const bool is_mine = coord.rank == spec_->coord().rank;
  std::array<std::shared_ptr<const Program>, kModes.size()> of_rank = programs_;
  for (const Mode mode : kModes) {
    if (!is_mine) of_rank[static_cast<size_t>(mode)] = std::make_shared<const Program>(spec_->build(mode, coord));
  }
  std::vector<const Program*> programs;
  for (const auto& each : of_rank) programs.push_back(each.get());
  RankUnits held = describe_units(model().info(), programs, coord);
  set_holders(held.units, coord);
  return held;
}

// Finds out which ranks along the split axes hold each unit.
void Plan::set_holders(std::vector<Unit>& units, const Coord& coord) const {
  const auto& split = training_[coord.rank]->split_axes;
  if (split.empty()) return;
  const std::vector<int> group = coord.shape.group(coord.rank, split);
  std::map<const Program*, std::vector<bool>> runs;
  const auto runs_of = [&](const std::shared_ptr<const Program>& program) -> const std::vector<bool>& {
    const auto [known, is_new] = runs.try_emplace(program.get());
    if (is_new) known->second = positions_run(*program, model().info());
    return known->second;
  };
  for (Unit& unit : units) {
    unit.holders.clear();
    for (size_t member = 0; member < group.size(); ++member) {
      if (group[member] == coord.rank) unit.holder = static_cast<int>(unit.holders.size());
      if (training_[group[member]]->units[unit.index].held) unit.holders.push_back(static_cast<int>(member));
    }
    if (unit.holders.size() < 2) continue;
    for (const int holder : unit.holders) {
      unit.uses.emplace_back();
      for (const int position : model().info().units[unit.index].positions) {
        if (runs_of(training_[group[holder]])[position]) unit.uses.back().push_back(position);
      }
    }
  }
}

Communicator& Plan::comm_of_holders(const Unit& unit) const {
  const auto& split = program(Mode::train).split_axes;
  if (!spec_->mesh() || split.empty()) misuse("unit {} is held by one rank only: there is nothing to tie", unit.index);
  return *spec_->mesh()->among(split, unit.holders);
}

Channel& Plan::channel(const Message& message) const {
  const auto known = channels_.find(message);
  return known != channels_.end() ? *known->second : *open_channel(message);
}

std::shared_ptr<Channel> Plan::open_channel(const Message& message) const {
  if (!spec_->mesh()) misuse("the program sends messages in channel '{}', but no pass gave it a mesh", message.channel);
  const int mine = spec_->coord().index(message.axes);
  const auto [from, to] = message.is_send ? std::pair(mine, message.peer) : std::pair(message.peer, mine);
  const std::string name = fmt::format("{} {} {}>{}", fmt::join(message.axes, "+"), message.channel, from, to);
  return spec_->mesh()->channel(message.axes, from, to, name, message.depth);
}

// Makes all channels of this rank's programs. Both ends of a channel make it at its place in one order over all ranks, so no rank
// waits for ever.
void Plan::make_channels() {
  const Coord coord = spec_->coord();
  std::set<std::vector<std::string>> axes;  // of all ranks' messages: joining axes is collective over the mesh
  for (const auto& program : training_) {
    for (const Action& action : program->actions) {
      if (const auto message = message_of(action)) axes.insert(message->axes);
    }
  }
  for (const auto& names : axes) comm(names);
  std::map<std::tuple<int, int, std::string, int>, Message> ordered;  // by sender, receiver, name and depth
  for (const auto& program : programs_) {
    for (const Action& action : program->actions) {
      const auto message = message_of(action);
      if (!message) continue;
      const int peer = coord.shape.group(coord.rank, message->axes)[message->peer];
      const auto [from, to] = message->is_send ? std::pair(coord.rank, peer) : std::pair(peer, coord.rank);
      ordered.emplace(std::tuple(from, to, message->channel, message->depth), *message);
    }
  }
  for (const auto& [order, message] : ordered) channels_[message] = open_channel(message);
}

int Plan::data_ranks() const {
  return spec_->coord().size(data_axes_);
}

int64_t Plan::first_sample(int64_t samples) const {
  return spec_->coord().index(data_axes_) * samples;
}

std::shared_ptr<Axis> Plan::axis(const std::vector<std::string>& axes) const {
  if (!spec_->mesh()) misuse("the program communicates over '{}', but no pass gave it a mesh", fmt::join(axes, "', '"));
  return spec_->mesh()->join(axes);
}

AxisLink Plan::link(const std::vector<std::string>& axes) const {
  return spec_->mesh() ? axis(axes)->link : AxisLink{};
}

Communicator& Plan::comm(const std::vector<std::string>& axes) const {
  return *axis(axes)->communicator;
}

Communicator& Plan::control(const std::vector<std::string>& axes) const {
  return *axis(axes)->control;
}

Communicator& Plan::axis_of(const Unit& unit) const {
  return comm(unit.plan.shard_axes);
}

World Plan::place() const {
  World world;
  world.rank = spec_->coord().rank;
  world.size = spec_->coord().shape.world_size();
  return world;
}

Rehearsal Plan::rehearsal(const std::vector<Batch>& micro_batches) const {
  return rehearsal(program(Mode::train), held_, micro_batches, shapes(micro_batches));
}

Stage Plan::stage(const std::vector<Batch>& micro_batches) const {
  return {spec_->model(), [this](const std::vector<std::string>& axes) -> Communicator& { return comm(axes); }, micro_batches};
}

ValueShapes Plan::shapes(const std::vector<Batch>& micro_batches) const {
  const auto receives = [](const std::shared_ptr<const Program>& program) {
    return std::ranges::any_of(program->actions, [](const Action& a) { return role_of(a) == Role::transfer; });
  };
  if (std::ranges::none_of(training_, receives)) return {};
  return value_shapes(stage(micro_batches), program(Mode::train).precision);
}

Rehearsal Plan::rehearsal(const Program& training, const RankUnits& held, const std::vector<Batch>& micro_batches,
                          const ValueShapes& values) const {
  return rehearse(stage(micro_batches), training, held, values);
}

}  // namespace zt
