// Simulates the collectives of all ranks, as if each rank waited for every collective before its next action. A program that
// passes does not depend on asynchronous communication.
#include <deque>

#include "verify.h"

namespace zt::verifier {

namespace {

// One call on one communicator.
struct Call {
  int step;   // index of the action
  int group;  // index of the communicator
};

// The ranks of one communicator.
struct Group {
  std::string name;  // the axes: "dp"
  std::vector<int> ranks;
  int arrived = 0;  // number of ranks that have reached the next call
};

// Returns whether two ranks make the same call. The attributes of layers' actions may differ: each rank decides what it keeps.
bool is_same_call(const Action& a, const Action& b) {
  if (&a == &b) return true;
  if (role_of(a) == Role::compute) return b.kind == a.kind && a.target == b.target && a.micro_batch == b.micro_batch;
  return is_equal(a, b);
}

class Simulation {
 public:
  Simulation(const ModelInfo& model, const MeshShape& mesh, const std::vector<const Program*>& programs)
      : programs_(programs), calls_(programs.size()), next_(programs.size(), 0) {
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      std::map<std::pair<std::vector<std::string>, int>, int> known;  // by axes, and by unit if only its holders take part
      const Program& program = *programs[rank];
      for (int step = 0; step < static_cast<int>(program.actions.size()); ++step) {
        for (const auto& axes : communicators_of(program.actions[step], model)) {
          const Action& action = program.actions[step];
          const auto [found, is_new] = known.emplace(std::pair(axes, kind(action.kind).among_holders ? action.target : -1), -1);
          if (is_new) found->second = group_of(members(mesh, rank, axes, action), fmt::format("{}", fmt::join(axes, "+")));
          if (groups_[found->second].ranks.size() > 1) calls_[rank].push_back({step, found->second});
        }
      }
    }
  }

  std::vector<RankFinding> run() {
    std::deque<int> moving;
    for (int rank = 0; rank < static_cast<int>(calls_.size()); ++rank) moving.push_back(rank);
    while (!moving.empty()) {
      const int rank = moving.front();
      moving.pop_front();
      const Call* call = current(rank);
      if (!call) continue;
      Group& group = groups_[call->group];
      if (++group.arrived < static_cast<int>(group.ranks.size())) continue;
      group.arrived = 0;
      if (const auto mismatch = find_mismatch(group)) return {*mismatch};
      for (const int member : group.ranks) {
        ++next_[member];
        moving.push_back(member);
      }
    }
    return stuck_ranks();
  }

 private:
  // Returns the ranks that take part in the action.
  std::vector<int> members(const MeshShape& mesh, int rank, const std::vector<std::string>& axes, const Action& action) const {
    std::vector<int> ranks = mesh.group(rank, axes);
    if (kind(action.kind).among_holders)
      std::erase_if(ranks, [&](int member) { return !programs_[member]->units[action.target].held; });
    return ranks;
  }

  int group_of(const std::vector<int>& ranks, const std::string& name) {
    const auto [found, is_new] = group_index_.emplace(std::pair(name, ranks), static_cast<int>(groups_.size()));
    if (is_new) groups_.push_back({name, ranks});
    return found->second;
  }

  const Call* current(int rank) const { return next_[rank] < calls_[rank].size() ? &calls_[rank][next_[rank]] : nullptr; }
  const Action& action(int rank) const { return programs_[rank]->actions[current(rank)->step]; }
  std::string at(int rank) const { return fmt::format("action {} ({})", current(rank)->step, action_text(action(rank))); }

  // Returns the first rank whose call is not that of the majority of the group (ties: the call of the earlier ranks).
  std::optional<RankFinding> find_mismatch(const Group& group) const {
    const auto agree = [&](int a, int b) { return is_same_call(action(a), action(b)); };
    const auto votes = [&](int rank) {
      return std::count_if(group.ranks.begin(), group.ranks.end(), [&](int other) { return agree(rank, other); });
    };
    const int first = group.ranks.front();
    if (votes(first) == static_cast<std::ptrdiff_t>(group.ranks.size())) return std::nullopt;
    const int majority =
        *std::max_element(group.ranks.begin(), group.ranks.end(), [&](int a, int b) { return votes(a) < votes(b); });
    const int odd = *std::find_if(group.ranks.begin(), group.ranks.end(), [&](int rank) { return !agree(rank, majority); });
    return RankFinding{
        odd,
        {current(odd)->step, fmt::format("on axis {} it does not match the operation of rank {}, {}: every rank of an axis makes "
                                         "the same collectives in the same order",
                                         group.name, majority, at(majority))}};
  }

  std::vector<RankFinding> stuck_ranks() const {
    std::vector<RankFinding> findings;
    for (int rank = 0; rank < static_cast<int>(calls_.size()); ++rank) {
      const Call* call = current(rank);
      if (!call) continue;
      const Group& group = groups_[call->group];
      const auto is_absent = [&](int member) { return !current(member) || current(member)->group != call->group; };
      const int absent = *std::find_if(group.ranks.begin(), group.ranks.end(), is_absent);
      const std::string where = current(absent)
                                    ? fmt::format("waits in its {} on axis {}", at(absent), groups_[current(absent)->group].name)
                                    : std::string("ends without this operation");
      findings.push_back(
          {rank,
           {call->step, fmt::format("it waits for ever on axis {}: rank {} {}; every rank of an axis makes the same "
                                    "collectives in the same order",
                                    group.name, absent, where)}});
    }
    return findings;
  }

  const std::vector<const Program*>& programs_;
  std::vector<std::vector<Call>> calls_;  // by rank
  std::vector<size_t> next_;              // by rank: index of its next call
  std::vector<Group> groups_;
  std::map<std::pair<std::string, std::vector<int>>, int> group_index_;
};

}  // namespace

std::vector<RankFinding> check_collectives(const ModelInfo& model, const MeshShape& mesh,
                                           const std::vector<const Program*>& programs) {
  return Simulation(model, mesh, programs).run();
}

}  // namespace zt::verifier
