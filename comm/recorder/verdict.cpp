#include "verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "inquiry.h"

namespace zt::comm {

namespace {

constexpr double kLongWait = 1;      // seconds
constexpr size_t kMostStatuses = 4;  // missing ranks whose status is given one by one

const CallRecord* find_collective(const Track* track, uint64_t turn) {
  if (!track) return nullptr;
  for (const CallRecord& record : track->records) {
    if (is_collective(record.call.kind) && record.turn == turn) return &record;
  }
  return nullptr;
}

struct Called {
  const CallRecord* record;
  std::vector<int> ranks;
};

// Returns the different calls at `turn` with their ranks, the most frequent call first.
std::vector<Called> calls_at(const Members& members, uint64_t turn) {
  std::vector<Called> calls;
  for (size_t r = 0; r < members.ranks.size(); ++r) {
    const CallRecord* record = find_collective(members.tracks[r], turn);
    if (!record) continue;
    auto alike =
        std::find_if(calls.begin(), calls.end(), [&](const Called& other) { return other.record->call == record->call; });
    if (alike == calls.end()) alike = calls.insert(calls.end(), {record, {}});
    alike->ranks.push_back(members.ranks[r]);
  }
  std::stable_sort(calls.begin(), calls.end(), [](const Called& a, const Called& b) { return a.ranks.size() > b.ranks.size(); });
  return calls;
}

// Returns the first collective of a communicator that differs between its ranks; empty if none does, as far as the records reach.
std::string find_difference(const Inquiry& inquiry, const Members& members) {
  std::set<uint64_t> turns;
  for (const Track* track : members.tracks) {
    if (!track) continue;
    for (const CallRecord& record : track->records) {
      if (is_collective(record.call.kind)) turns.insert(record.turn);
    }
  }
  for (const uint64_t turn : turns) {
    const auto calls = calls_at(members, turn);
    if (calls.size() < 2) continue;
    const Called &other = calls.back(), &most = calls.front();
    return fmt::format("{} called {} where {} called {}", ranks_text(other.ranks), inquiry.what(members, *other.record),
                       calls.size() == 2 && most.ranks.size() > 1 ? "the others" : ranks_text(most.ranks),
                       inquiry.call_text(members, *most.record));
  }
  return "";
}

// Returns the two sides of a message if they do not match, else an empty string.
std::string find_difference(const Inquiry& inquiry, const Wait& wait) {
  const Call& call = wait.record->call;
  const auto peer = static_cast<size_t>(call.peer);
  const Track* other = peer < wait.members->tracks.size() ? wait.members->tracks[peer] : nullptr;
  if (is_collective(call.kind) || !other) return "";
  const auto& ranks = wait.members->ranks;
  const auto own = static_cast<int32_t>(std::find(ranks.begin(), ranks.end(), wait.rank) - ranks.begin());
  const CallKind answer = call.kind == CallKind::send ? CallKind::recv : CallKind::send;
  for (const CallRecord& record : other->records) {
    if (record.call.kind != answer || record.call.peer != own || record.turn != wait.record->turn) continue;
    if (record.call.count == call.count && record.call.dtype == call.dtype) continue;
    return fmt::format("rank {} called {} where rank {} called {}", wait.rank, inquiry.what(*wait.members, *wait.record),
                       ranks[static_cast<size_t>(call.peer)], inquiry.call_text(*wait.members, record));
  }
  return "";
}

// Names the ranks that are stopped during the call: ", but the process of rank 1 is stopped". Empty if there are none.
std::string stopped_text(const Inquiry& inquiry, const Wait& wait) {
  std::vector<int> stopped;
  for (const int rank : wait.members->ranks) {
    const Flight* known = inquiry.flight(rank);
    if (known && known->is_stopped) stopped.push_back(rank);
  }
  if (stopped.empty()) return "";
  return fmt::format(", but the {} of {} {} stopped", stopped.size() > 1 ? "processes" : "process", ranks_text(stopped),
                     stopped.size() > 1 ? "are" : "is");
}

std::string missing_text(const Inquiry& inquiry, const Wait& wait) {
  const auto& missing = wait.missing;
  const std::string unknown = wait.unknown.empty() ? "" : fmt::format("nothing is known of {}", ranks_text(wait.unknown));
  if (missing.empty()) return unknown.empty() ? "all ranks have called it" + stopped_text(inquiry, wait) : unknown;
  std::string text;
  for (size_t i = 0; i < std::min(missing.size(), kMostStatuses); ++i)
    text += fmt::format("{}rank {} has not called it: {}", i > 0 ? "; " : "", missing[i], inquiry.status(missing[i]));
  if (missing.size() > kMostStatuses) {
    const std::vector<int> rest(missing.begin() + kMostStatuses, missing.end());
    text += fmt::format("; nor have {}", ranks_text(rest));
  }
  return unknown.empty() ? text : text + "; " + unknown;
}

// Returns one finding for all waits in the same call.
std::string wait_text(const Inquiry& inquiry, const std::vector<const Wait*>& alike) {
  const Wait& first = *alike[0];
  std::vector<int> ranks;
  double seconds = 0;
  for (const Wait* wait : alike) {
    ranks.push_back(wait->rank);
    seconds = std::max(seconds, inquiry.seconds_since(wait->rank, wait->record->started_ns));
  }
  const std::string activity = first.record->activity[0] == 0 ? "" : fmt::format(" ({})", first.record->activity.data());
  return fmt::format("{} {} in {}{}, for {:.1f} s; {}", ranks_text(ranks), ranks.size() > 1 ? "wait" : "waits",
                     inquiry.call_text(*first.members, *first.record), activity, seconds, missing_text(inquiry, first));
}

// Returns ranks that wait for each other, or none. Goes from a waiting rank to one that it waits for, until a rank appears twice.
std::vector<int> find_circle(const Inquiry& inquiry) {
  std::map<int, int> waits_for;
  for (const Wait& wait : inquiry.waits()) {
    for (const int other : wait.missing) {
      const bool waits_too = std::any_of(inquiry.waits().begin(), inquiry.waits().end(),
                                         [&](const Wait& theirs) { return theirs.rank == other && !theirs.missing.empty(); });
      if (waits_too) waits_for.emplace(wait.rank, other);
    }
  }
  for (const auto& [start, next] : waits_for) {
    std::vector<int> path{start};
    for (auto at = waits_for.find(start); at != waits_for.end(); at = waits_for.find(at->second)) {
      const auto before = std::find(path.begin(), path.end(), at->second);
      if (before != path.end()) return {before, path.end()};
      path.push_back(at->second);
    }
  }
  return {};
}

class VerdictBuilder {
 public:
  explicit VerdictBuilder(const std::vector<Flight>& flights) : flights_(flights), inquiry_(flights) {}

  Verdict build() {
    find_gone();
    find_stopped();
    find_differences();
    find_waits();
    find_circles();
    return std::move(verdict_);
  }

 private:
  void grave(std::string finding) {
    verdict_.findings.push_back(std::move(finding));
    verdict_.is_grave = true;
  }

  void find_gone() {
    for (const Flight& flight : flights_) {
      if (flight.is_alive || !flight.end.empty()) continue;
      grave(fmt::format(
          "the process of rank {} ({}) is gone and said nothing: it was killed, by hand (kill -9) or because memory ran out",
          flight.rank, flight.process));
    }
  }

  void find_stopped() {
    for (const Flight& flight : flights_) {
      if (!flight.is_stopped) continue;
      grave(fmt::format(
          "the process of rank {0} ({1}) is stopped, by SIGSTOP, Ctrl-Z or a debugger, and the others wait for it: let "
          "it go on with kill -CONT {1}",
          flight.rank, flight.process));
    }
  }

  void find_differences() {
    std::set<std::string> reported;
    const auto tell = [&](const std::string& difference) {
      if (!difference.empty() && reported.insert(difference).second) grave(difference);
    };
    for (const Members& members : inquiry_.communicators()) tell(find_difference(inquiry_, members));
    for (const Wait& wait : inquiry_.waits()) {
      if (wait.record->call.peer >= 0) tell(find_difference(inquiry_, wait));
    }
  }

  void find_waits() {
    std::map<std::tuple<const Members*, uint64_t, CallKind, int32_t>, std::vector<const Wait*>> alike;
    for (const Wait& wait : inquiry_.waits()) {
      const Call& call = wait.record->call;
      alike[{wait.members, wait.record->turn, call.kind, is_collective(call.kind) ? -1 : wait.rank}].push_back(&wait);
    }
    const bool is_late = std::ranges::any_of(inquiry_.waits(), [](const Wait& wait) { return !wait.missing.empty(); });
    for (const auto& [key, waits] : alike) {
      if (is_late && all_have_called(*waits[0])) continue;
      verdict_.findings.push_back(wait_text(inquiry_, waits));
      for (const Wait* wait : waits) {
        const bool is_long = inquiry_.seconds_since(wait->rank, wait->record->started_ns) > kLongWait;
        verdict_.is_grave |= is_long && !wait->missing.empty();
      }
    }
  }

  // Whether nothing holds up the call of a wait but what holds up others, such as an operation before it on the same stream. It
  // may also be over on a device without the host having looked yet.
  bool all_have_called(const Wait& wait) const {
    return wait.missing.empty() && wait.unknown.empty() && stopped_text(inquiry_, wait).empty();
  }

  void find_circles() {
    const auto circle = find_circle(inquiry_);
    if (circle.size() > 1)
      verdict_.findings.push_back(
          fmt::format("{} wait for each other: they make these calls in different orders", ranks_text(circle)));
  }

  const std::vector<Flight>& flights_;
  const Inquiry inquiry_;
  Verdict verdict_;
};

}  // namespace

std::string Verdict::text() const {
  if (findings.empty()) return "no rank waits for another";
  return fmt::format("{}", fmt::join(findings, "\n"));
}

Verdict judge(const std::vector<Flight>& flights) {
  return VerdictBuilder(flights).build();
}

}  // namespace zt::comm
