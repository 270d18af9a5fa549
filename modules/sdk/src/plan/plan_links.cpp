#include "plan_links.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "execute/step_handlers.h"

namespace zt {

namespace {

// Returns the axes along which ranks have other samples, positions or elements, or communicate besides in COUNT and NORM, which
// run over all axes of a mesh.
AxesSet axes_of_work(const ModelInfo& model, const std::vector<std::shared_ptr<const RankProgram>>& programs) {
  AxesSet used;
  for (const auto& program : std::set(programs.begin(), programs.end())) {
    used.insert(program->split_axes);
    for (const UnitPlan& unit : program->units) used.merge(std::set{unit.shard_axes, unit.comm_axes()});
    for (const Action& action : program->actions) {
      if (action.kind == Kinds::get().count) used.insert(action.sample_axes());
      else if (action.kind != Kinds::get().norm)
        for (auto& axes : communicators_of(action, model)) used.insert(std::move(axes));
    }
  }
  for (const ParamInfo& param : model.params) used.insert(param.cut_axes());
  return used;
}

// Returns the messages of this rank's programs. Both ends of a channel are at its place in one order over all ranks, so no rank
// waits for ever while they are made.
std::vector<Message> messages_of(const Plan& plan) {
  const Coord coord = plan.program().coord();
  std::map<std::tuple<int, int, std::string, int>, Message> ordered;  // by sender, receiver, name and depth
  for (const Mode mode : plan.modes()) {
    for (const Action& action : plan.rank_program(mode).actions) {
      const auto message = message_of(action);
      if (!message) continue;
      const int peer = coord.shape.group(coord.rank, message->axes)[message->peer];
      const auto [from, to] = message->is_send ? std::pair(coord.rank, peer) : std::pair(peer, coord.rank);
      ordered.emplace(std::tuple(from, to, message->channel, message->depth), *message);
    }
  }
  std::vector<Message> messages;
  for (const auto& [order, message] : ordered) messages.push_back(message);
  return messages;
}

}  // namespace

AxesSet joined_axes(const ModelInfo& model, const std::vector<std::shared_ptr<const RankProgram>>& programs) {
  auto joined = axes_of_work(model, programs);
  for (const auto& program : std::set(programs.begin(), programs.end())) {
    for (const Action& action : program->actions) {
      for (auto& axes : communicators_of(action, model)) joined.insert(std::move(axes));
      if (action.kind != Kinds::get().norm) continue;
      for (auto& axes : summed_in_turn(action.axes(), program->split_axes)) joined.insert(std::move(axes));
    }
  }
  joined.erase(std::vector<std::string>());
  return joined;
}

std::vector<std::string> idle_axes(const Plan& plan) {
  if (!plan.program().mesh()) return {};
  std::set<std::string> used;
  for (const auto& axes : axes_of_work(plan.model(), plan.programs_of_ranks())) used.insert(axes.begin(), axes.end());
  std::vector<std::string> idle;
  const Coord coord = plan.program().coord();
  for (const auto& [name, size] : coord.shape.axes()) {
    if (size > 1 && !used.contains(name)) idle.push_back(name);
  }
  return idle;
}

std::vector<std::string> axes_of_run(const Plan& plan, const RankProgram& program) {
  if (!communicates(program, plan.model())) return {};
  std::set<std::string> wanted(program.split_axes.begin(), program.split_axes.end());
  wanted.insert(plan.data_axes().begin(), plan.data_axes().end());
  wanted.insert(plan.model().inner_axes.begin(), plan.model().inner_axes.end());
  const Coord coord = plan.program().coord();
  std::vector<std::string> axes;  // in the mesh's order
  for (const AxisSize& axis : coord.shape.axes()) {
    if (axis.size > 1 && wanted.contains(axis.name)) axes.push_back(axis.name);
  }
  return axes;
}

LinkNeeds link_needs(const Plan& plan) {
  LinkNeeds needs{.axes = plan.joined_axes(), .messages = messages_of(plan)};
  for (const Mode mode : plan.modes()) needs.axes.insert(axes_of_run(plan, plan.rank_program(mode)));
  needs.axes.erase(std::vector<std::string>());
  // The axes of all ranks' messages, because joining axes is collective over the mesh. Most ranks share a program with others.
  for (const auto& program : std::set(plan.programs_of_ranks().begin(), plan.programs_of_ranks().end())) {
    for (const Action& action : program->actions) {
      if (const auto message = message_of(action)) needs.axes.insert(message->axes);
    }
  }
  for (const Unit& unit : plan.rank_units().units) {
    if (unit.plan.held && unit.holders.size() > 1) needs.holders.push_back(unit.holders);
  }
  return needs;
}

}  // namespace zt
