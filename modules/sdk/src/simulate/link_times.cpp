#include "link_times.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "hardware.h"
#include "zt/base/error.h"

namespace zt {

namespace {

double doublings(int count) {
  return std::ceil(std::log2(count));
}

// `latency` and the seconds for which the links are busy, of which the longer ones count.
LinkTime timed(double latency, double inside, double across) {
  const double seconds = latency + std::max(inside, across);
  return seconds > 0 ? LinkTime{seconds, {inside / seconds, across / seconds}} : LinkTime{};
}

}  // namespace

void LinkTimes::refuse(const char* link) const {
  misuse("the costs{} do not tell how long transfers take: give the bandwidth of hardware.{}, or measure them by trainer:costs",
         quoted(machine_.name), link);
}

double LinkTimes::inside() const {
  if (machine_.inside.bandwidth <= 0) refuse("inside");
  return machine_.inside.bandwidth * machine_.efficiency.links;
}

double LinkTimes::across(double cards) const {
  if (machine_.across.bandwidth <= 0) refuse("across");
  return machine_.across.bandwidth * machine_.efficiency.links * cards;
}

std::vector<int> LinkTimes::ranks_beside(int rank) const {
  std::vector<int> ranks;
  const int first = machine_of(rank) * machine_.ranks_per_machine;
  for (int other = first; other < std::min(first + machine_.ranks_per_machine, mesh_.world_size()); ++other)
    ranks.push_back(other);
  return ranks;
}

LinkTimes::Group LinkTimes::describe(int rank, const std::vector<std::string>& axes) const {
  const std::vector<int> members = mesh_.group(rank, axes);
  std::set<int> machines;
  for (const int member : members) machines.insert(machine_of(member));
  Group group{.size = static_cast<int>(members.size()), .machines = static_cast<int>(machines.size())};
  group.here =
      static_cast<int>(std::ranges::count_if(members, [&](int member) { return machine_of(member) == machine_of(rank); }));
  std::set<int> leaders;  // of the groups that leave this machine
  int leaving = 0;        // ranks of them
  for (const int other : ranks_beside(rank)) {
    const std::vector<int> others = mesh_.group(other, axes);
    if (std::ranges::all_of(others, [&](int member) { return machine_of(member) == machine_of(rank); })) continue;
    leaders.insert(*std::ranges::min_element(others));
    ++leaving;
  }
  if (leaving == 0) return group;
  const double cards = machine_.cards();
  group.cards = std::min<double>(cards / static_cast<double>(leaders.size()), group.here);
  group.card = std::min(1.0, cards / leaving);
  return group;
}

const LinkTimes::Group& LinkTimes::group(int rank, const std::vector<std::string>& axes) const {
  const std::pair key(rank, axes);
  const auto found = groups_.find(key);
  return found != groups_.end() ? found->second : groups_.emplace(key, describe(rank, axes)).first->second;
}

LinkTime LinkTimes::collective(int rank, const std::vector<std::string>& axes, int64_t bytes, bool is_two_level) const {
  const Group& of = group(rank, axes);
  const auto sent = static_cast<double>(bytes);
  const double doubling = machine_.inside.latency * doublings(of.here) + machine_.across.latency * doublings(of.machines);
  if (of.machines == 1) return timed(doubling, bytes > 0 ? sent / inside() : 0, 0);
  if (bytes == 0) return {doubling, {}};
  if (is_two_level) {
    const double whole = sent * of.size / (of.size - 1);
    const double in_machine = whole * (of.here - 1) / of.here / inside();
    const double between = whole * (of.machines - 1) / of.machines / across(of.cards);
    const double seconds = doubling + in_machine + between;
    return {seconds, {in_machine / seconds, between / seconds}};
  }
  const double around = machine_.inside.latency * (of.size - of.machines) + machine_.across.latency * of.machines;
  const LinkTime ring = timed(around, sent / inside(), sent / across(of.cards));
  const LinkTime exchange = timed(doubling, sent / inside(), sent / across(of.card));
  return exchange.seconds < ring.seconds ? exchange : ring;
}

LinkTime LinkTimes::all_to_all(int rank, const std::vector<std::string>& axes, int64_t bytes) const {
  const Group& of = group(rank, axes);
  const double latency = machine_.inside.latency * doublings(of.here) + machine_.across.latency * doublings(of.machines);
  const double to_each = static_cast<double>(bytes) / std::max(1, of.size - 1);
  const double here = to_each * (of.here - 1), away = to_each * (of.size - of.here);
  return timed(latency, here > 0 ? here / inside() : 0, away > 0 ? away / across(of.card) : 0);
}

LinkTime LinkTimes::message(int rank, const std::vector<std::string>& axes, int peer, int64_t bytes) const {
  const auto sent = static_cast<double>(bytes);
  const auto leaves = [&](int other, int distance) {
    const std::vector<int> members = mesh_.group(other, axes);
    const auto place = std::ranges::find(members, other) - members.begin() + distance;
    return place >= 0 && place < static_cast<std::ptrdiff_t>(members.size()) && machine_of(members[place]) != machine_of(other);
  };
  const int distance = peer - Coord{mesh_, rank}.index(axes);
  if (!leaves(rank, distance)) return timed(machine_.inside.latency, bytes > 0 ? sent / inside() : 0, 0);
  const auto leaving = std::ranges::count_if(ranks_beside(rank), [&](int other) { return leaves(other, distance); });
  const double card = std::min(1.0, machine_.cards() / static_cast<double>(leaving));
  return timed(machine_.across.latency, 0, bytes > 0 ? sent / across(card) : 0);
}

}  // namespace zt
