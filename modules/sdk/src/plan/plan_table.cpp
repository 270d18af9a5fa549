#include "plan_table.h"

#include <algorithm>
#include <map>
#include <set>

#include "zt/model/layer_extras.h"

namespace zt {

namespace {

// Returns the ranks of each distinct program, in the order of the first rank. `programs`: by rank; equal ones share one object.
std::vector<std::vector<int>> ranks_by_program(const std::vector<std::shared_ptr<const RankProgram>>& programs) {
  std::vector<std::vector<int>> kinds;
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    const auto alike = std::ranges::find_if(kinds, [&](const auto& ranks) { return programs[ranks[0]] == programs[rank]; });
    if (alike == kinds.end()) kinds.push_back({rank});
    else alike->push_back(rank);
  }
  return kinds;
}

// Of ranks that own whole tensors, returns the one whose optimizer state is largest, among those with which `coord` shares the
// tensors; that of `coord` if no rank owns any.
int heaviest_owner(const Plan& plan, const RankUnits& held, const Coord& coord) {
  std::map<std::vector<std::string>, std::map<int, int64_t>> bytes;  // by Unit::owner_axes and the index along them
  const at::ScalarType master = plan.main().precision.master();
  for (const Unit& unit : held.units) {
    for (size_t place = 0; place < unit.owners.size(); ++place) {
      const int param = plan.model().units[unit.index].params[place];
      if (unit.owners[place] < 0) continue;
      const UpdatedPart part{param, true, plan.states_of(plan.model().params[param])};
      bytes[unit.owner_axes][unit.owners[place]] += part.state_bytes(master);
    }
  }
  int rank = coord.rank;
  int64_t most = 0;
  for (const auto& [axes, of_owners] : bytes) {
    for (const auto& [owner, count] : of_owners) {
      if (count <= most) continue;
      most = count;
      rank = coord.shape.group(coord.rank, axes)[owner];
    }
  }
  return rank;
}

}  // namespace

std::string ranges_text(const std::vector<int>& numbers) {
  std::string text;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[begin]);
    if (end > begin) text += fmt::format("-{}", numbers[end]);
    begin = end + 1;
  }
  return text;
}

std::set<std::string> assumptions_of(const RankProgram& program, const Plan& plan) {
  const std::vector<bool> runs = positions_run(program, plan.model());
  std::set<std::string> sentences;
  for (size_t p = 0; p < plan.layers().size(); ++p) {
    const Layer& layer = *plan.layers()[p].layer;
    if (const std::string text = extras_of(layer).assumption(); runs[p] && !text.empty())
      sentences.insert(layer.kind() + ": " + text);
  }
  return sentences;
}

std::map<std::string, int64_t> sent_by_kind(const RankPlan& rank, const RankProgram& program, const Rehearsal& rehearsed,
                                            const ModelInfo& model) {
  std::map<std::string, int64_t> sent = rank.sent;
  for (size_t i = 0; i < program.actions.size(); ++i) {
    const Action& action = program.actions[i];
    const bool is_layer = role_of(action) == Role::compute;
    if (const int64_t bytes = rehearsed.actions[i].sent; bytes > 0)
      sent[is_layer ? model.positions[action.target].kind : kind(action.kind).name] += bytes;
  }
  return sent;
}

std::map<std::string, int64_t> sent_by_axis(const RankPlan& rank, const RankProgram& program, const Rehearsal& rehearsed) {
  std::map<std::string, int64_t> along = rank.along;
  for (size_t i = 0; i < program.actions.size(); ++i) {
    const RehearsedAction& action = rehearsed.actions[i];
    for (const auto& [axis, bytes] : action.sent_along) along[axis] += bytes.collective + bytes.all_to_all;
    const auto message = message_of(program.actions[i]);
    if (message) along[fmt::format("{}", fmt::join(message->axes, "+"))] += action.sent;
  }
  std::erase_if(along, [](const auto& entry) { return entry.second == 0; });
  return along;
}

Value plan_of_all_ranks(const Plan& plan, const StepBatch& batch) {
  const MeshShape shape = plan.program().coord().shape;
  const RehearsalInputs inputs = plan.inputs(plan.cut(batch), {shape, 0});
  Value::List kinds;
  for (const std::vector<int>& ranks : ranks_by_program(plan.programs_of_ranks())) {
    Coord coord{shape, ranks.front()};
    const RankProgram& program = *plan.programs_of_ranks()[ranks.front()];
    RankUnits held = plan.describe_rank(coord);
    const std::set<std::string> sentences = assumptions_of(program, plan);
    Value::List assumptions(sentences.begin(), sentences.end());
    if (const int heaviest = heaviest_owner(plan, held, coord); heaviest != coord.rank) {
      coord = {shape, heaviest};
      held = plan.describe_rank(coord);
      assumptions.emplace_back(fmt::format("optimizer state: that of rank {}, which owns the tensors with most of it", heaviest));
    }
    const RankPlan rank = plan.rank_plan(program, held, coord);
    std::map<std::string, int64_t> memory(rank.held.begin(), rank.held.end());
    const Rehearsal rehearsed = rehearse(inputs, program, held, {shape, ranks.front()});
    memory["activations"] = rehearsed.peak_bytes();
    int64_t total = 0;
    for (const auto& [kind, bytes] : memory) total += bytes;
    memory["total"] = total;
    for (const auto& [tier, bytes] : rank.elsewhere) memory[tier] = bytes;
    rehearsed.most_bytes_away().add_to(memory);
    const std::map<std::string, int64_t> sent = sent_by_kind(rank, program, rehearsed, plan.model());
    const std::map<std::string, int64_t> along = sent_by_axis(rank, program, rehearsed);
    kinds.push_back(Value::Table{{"ranks", ranges_text(ranks)},
                                 {"count", static_cast<int64_t>(ranks.size())},
                                 {"memory", Value::Table(memory.begin(), memory.end())},
                                 {"actions", Value::Table(rank.actions.begin(), rank.actions.end())},
                                 {"sent", Value::Table(sent.begin(), sent.end())},
                                 {"along", Value::Table(along.begin(), along.end())},
                                 {"assumptions", std::move(assumptions)}});
  }
  return kinds;
}

}  // namespace zt
