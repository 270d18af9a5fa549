// What the ranks of a plan communicate over.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "execute/norm/norm_handler.h"
#include "plan.h"

namespace zt {

// Returns the axes over which the programs of any rank communicate, or a trainer with these programs does between their runs.
std::set<std::vector<std::string>> Plan::joined_axes(const std::vector<std::shared_ptr<const Program>>& programs) const {
  auto joined = axes_of_work(programs);
  for (const auto& program : std::set(programs.begin(), programs.end())) {
    for (const Action& action : program->actions) {
      for (auto& axes : communicators_of(action, model())) joined.insert(std::move(axes));
      if (action.kind != Kinds::get().norm) continue;
      for (auto& axes : summed_in_turn(action.axes(), program->split_axes)) joined.insert(std::move(axes));
    }
  }
  joined.erase(std::vector<std::string>());
  return joined;
}

// Returns the axes along which ranks have other samples, positions or elements, or communicate besides in COUNT and NORM, which
// run over all axes of a mesh.
std::set<std::vector<std::string>> Plan::axes_of_work(const std::vector<std::shared_ptr<const Program>>& programs) const {
  const ModelInfo& info = model();
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
  for (const auto& axes : axes_of_work(of_ranks_)) used.insert(axes.begin(), axes.end());
  std::vector<std::string> idle;
  const Coord coord = spec_->coord();
  for (const auto& [name, size] : coord.shape.axes()) {
    if (size > 1 && !used.contains(name)) idle.push_back(name);
  }
  return idle;
}

std::vector<std::string> Plan::axes_of_run(const Program& program) const {
  const bool communicates = !program.split_axes.empty() || std::ranges::any_of(program.actions, [&](const Action& action) {
    return action.kind != Kinds::get().count && !communicators_of(action, model()).empty();
  });
  if (!communicates) return {};
  std::vector<std::string> axes = program.split_axes;
  for (const std::string& axis : data_axes_) {
    if (std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
  }
  return axes;
}

LinkNeeds Plan::link_needs() const {
  LinkNeeds needs{.axes = joined_, .split_axes = main().split_axes, .messages = messages()};
  for (const auto& program : programs_) {
    if (program) needs.axes.insert(axes_of_run(*program));
  }
  needs.axes.erase(std::vector<std::string>());
  // The axes of all ranks' messages, because joining axes is collective over the mesh. Most ranks share a program with others.
  for (const auto& program : std::set(of_ranks_.begin(), of_ranks_.end())) {
    for (const Action& action : program->actions) {
      if (const auto message = message_of(action)) needs.axes.insert(message->axes);
    }
  }
  for (const Unit& unit : held_.units) {
    if (unit.plan.held && unit.holders.size() > 1) needs.holders.push_back(unit.holders);
  }
  return needs;
}

// Returns the messages of this rank's programs. Both ends of a channel are at its place in one order over all ranks, so no rank
// waits for ever while they are made.
std::vector<Message> Plan::messages() const {
  const Coord coord = spec_->coord();
  std::map<std::tuple<int, int, std::string, int>, Message> ordered;  // by sender, receiver, name and depth
  for (const auto& program : programs_) {
    if (!program) continue;
    for (const Action& action : program->actions) {
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

}  // namespace zt
