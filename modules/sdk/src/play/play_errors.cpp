#include "play_errors.h"

#include <algorithm>
#include <utility>

#include "program/equal.h"
#include "zt/base/error.h"

namespace zt {

namespace {

const Action& action_of(const PlayedRanks& played, int index, int step) {
  return played.ranks[index].program->actions[step];
}

// "action 17 (REDUCE_GRAD 3)"
std::string at(const PlayedRanks& played, int index, int step) {
  return fmt::format("action {} ({})", step, action_text(action_of(played, index, step)));
}

bool is_same_call(const Action& a, const Action& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind || a.target != b.target || a.micro_batch != b.micro_batch) return false;
  return role_of(a) == Role::compute || is_equal(a, b);
}

// Finds out for whom the ranks wait that stand still.
class Stuck {
 public:
  Stuck(const PlayedRanks& played, const std::vector<int>& steps, const GroupCalls& groups, const ChannelQueues& channels)
      : played_(played), steps_(steps), groups_(groups), channels_(channels) {}

  std::vector<Refusal> errors() const {
    std::vector<Refusal> errors;
    std::string circle = circle_text();
    for (size_t index = 0; index < steps_.size(); ++index) {
      if (steps_[index] < 0) continue;
      const PlayedRank& rank = played_.ranks[index];
      const std::string others = rank.count > 1 ? fmt::format(" ({} more wait alike)", rank.count - 1) : "";
      errors.push_back({rank.rank, steps_[index], reason(rank.rank) + others + std::exchange(circle, "")});
    }
    return errors;
  }

 private:
  enum class For : uint8_t { group, message, slot };
  struct Wait {
    For what = For::group;
    std::string name;  // of the axes or the channel
    int rank = -1;     // for which it waits
  };

  int step_of(int rank) const { return steps_[played_.played_as[rank]]; }

  Wait wait_of(int rank) const {
    const int index = played_.played_as[rank];
    if (const auto& end = played_.messages[index][step_of(rank)]) {
      double now = 0;
      const bool waits = end->is_send ? !channels_.await_slot(*end, now) : !channels_.next(*end);
      const auto message = *message_of(action_of(played_, index, step_of(rank)));
      if (waits)
        return {end->is_send ? For::slot : For::message, message.channel, played_.mesh.group(rank, message.axes)[message.peer]};
    }
    for (int group = 0; group < static_cast<int>(played_.groups.size()); ++group) {
      if (!groups_.has_posted(group, index)) continue;
      const PlayedGroup& waited = played_.groups[group];
      for (const auto& member : waited.members) {
        if (!groups_.has_posted(group, member.played))
          return {For::group, waited.name(), rank_in_group(played_, waited.axes, rank, member.played)};
      }
    }
    return {};
  }

  std::string reason(int rank) const {
    const Wait wait = wait_of(rank);
    const std::string where = whereabouts(wait.rank);
    switch (wait.what) {
      case For::message:
        return fmt::format("it waits for ever for a message of rank {} in channel '{}': rank {} {}", wait.rank, wait.name,
                           wait.rank, where.empty() ? "ends without sending one" : where);
      case For::slot:
        return fmt::format(
            "it waits for ever for a free slot of {} in channel '{}' to rank {}: rank {} {}; give the channel more depth, or let "
            "that rank receive earlier",
            message_of(action_of(played_, played_.played_as[rank], step_of(rank)))->depth, wait.name, wait.rank, wait.rank,
            where.empty() ? "ends without taking a message" : where);
      default:
        return fmt::format(
            "it waits for ever on axis {}: rank {} {}; every rank of an axis makes the same collectives in the same order",
            wait.name, wait.rank, where.empty() ? "ends without this operation" : where);
    }
  }

  // Returns where a rank stands; empty if it has ended.
  std::string whereabouts(int rank) const {
    if (rank < 0 || step_of(rank) < 0) return "";
    const Wait wait = wait_of(rank);
    const std::string place = "waits in its " + at(played_, played_.played_as[rank], step_of(rank));
    return wait.what == For::group ? fmt::format("{} on axis {}", place, wait.name)
                                   : fmt::format("{} for rank {}", place, wait.rank);
  }

  // Returns the ranks that wait for each other in a circle that the rank waits for, from the lowest on; none if it waits for a
  // rank that has ended.
  std::vector<int> circle_from(int rank) const {
    std::vector<int> path;
    while (rank >= 0 && step_of(rank) >= 0) {
      const auto seen = std::ranges::find(path, rank);
      if (seen != path.end()) {
        path.erase(path.begin(), seen);
        std::ranges::rotate(path, std::ranges::min_element(path));
        return path;
      }
      path.push_back(rank);
      rank = wait_of(rank).rank;
    }
    return {};
  }

  std::string circle_text() const {
    for (const PlayedRank& rank : played_.ranks) {
      const std::vector<int> circle = circle_from(rank.rank);
      if (circle.size() == 2) return fmt::format("; ranks {} and {} wait for each other", circle[0], circle[1]);
      if (!circle.empty()) return fmt::format("; the ranks {} wait for each other in a circle", fmt::join(circle, ", "));
    }
    return "";
  }

  const PlayedRanks& played_;
  const std::vector<int>& steps_;
  const GroupCalls& groups_;
  const ChannelQueues& channels_;
};

}  // namespace

std::optional<Refusal> compare_calls(const PlayedRanks& played, int group, const std::vector<std::pair<int, PostedCall>>& calls) {
  const auto& members = played.groups[group].members;
  const auto action = [&](size_t member) -> const Action& {
    return action_of(played, calls[member].first, calls[member].second.step);
  };
  const auto votes = [&](size_t member) {
    int count = 0;
    for (size_t other = 0; other < calls.size(); ++other)
      count += is_same_call(action(member), action(other)) ? members[other].count : 0;
    return count;
  };
  if (votes(0) == played.groups[group].size()) return std::nullopt;
  size_t majority = 0;
  for (size_t member = 1; member < calls.size(); ++member) {
    if (votes(member) > votes(majority)) majority = member;
  }
  size_t odd = 0;
  while (is_same_call(action(odd), action(majority))) ++odd;
  const int odd_rank = played.ranks[calls[odd].first].rank;
  const int other = rank_in_group(played, played.groups[group].axes, odd_rank, calls[majority].first);
  return Refusal{odd_rank, calls[odd].second.step,
                 fmt::format("on axis {} it does not match the operation of rank {}, {}: every rank of an axis makes the same "
                             "collectives in the same order",
                             played.groups[group].name(), other, at(played, calls[majority].first, calls[majority].second.step))};
}

std::optional<Refusal> compare_ends(const PlayedRanks& played, const SentMessage& message, int receiver, int step,
                                    const PlayedEnd& end) {
  const PlayedChannel& channel = played.channels[end.channel];
  const Action &sent = action_of(played, channel.sender, message.step), &received = action_of(played, receiver, step);
  const auto declared = *message_of(received);
  const int rank = played.ranks[receiver].rank, sender = played.mesh.group(rank, declared.axes)[declared.peer];
  if (sent.target != received.target || sent.micro_batch != received.micro_batch)
    return Refusal{rank, step,
                   fmt::format("the next message in channel '{}' is that of rank {}, {}: both ranks must order "
                               "their messages alike",
                               channel.name, sender, at(played, channel.sender, message.step))};
  if (message.depth != end.depth)
    return Refusal{rank, step,
                   fmt::format("it gives channel '{}' {} buffers, and rank {} takes it for {} deep: give both ends "
                               "one depth",
                               channel.name, end.depth, sender, message.depth)};
  return std::nullopt;
}

std::vector<Refusal> find_stuck(const PlayedRanks& played, const std::vector<int>& steps, const GroupCalls& groups,
                                const ChannelQueues& channels) {
  return Stuck(played, steps, groups, channels).errors();
}

}  // namespace zt
