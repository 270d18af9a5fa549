#include "inquiry.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace zt::comm {

namespace {

bool is_under_way(const CallRecord& record) {
  return record.stage == CallStage::running || record.stage == CallStage::timed_out;
}

}  // namespace

bool has_come(const Track& track, const Call& call, uint64_t turn, int peer) {
  const bool is_message = !is_collective(call.kind);
  const CallKind answer = call.kind == CallKind::send ? CallKind::recv : CallKind::send;
  uint64_t begun = is_message ? 0 : track.collectives;
  for (const CallRecord& record : track.records) {
    const bool is_queued = record.stage == CallStage::queued;
    if (!is_message && is_queued && is_collective(record.call.kind)) --begun;
    if (is_message && !is_queued && record.call.kind == answer && record.call.peer == peer)
      begun = std::max(begun, record.turn + 1);
  }
  return begun > turn;
}

bool has_finished(const Track& track, const Call& call, uint64_t turn, int peer) {
  const bool is_message = !is_collective(call.kind);
  const CallKind answer = call.kind == CallKind::send ? CallKind::recv : CallKind::send;
  for (const CallRecord& record : track.records) {
    const bool is_kind = is_message ? record.call.kind == answer && record.call.peer == peer : is_collective(record.call.kind);
    if (is_kind && record.turn == turn) return record.stage == CallStage::done;
  }
  // The message may be older than the records.
  const bool are_all = track.records.empty() || track.records.front().number == 0;
  return has_come(track, call, turn, peer) || (is_message && !are_all);
}

Inquiry::Inquiry(const std::vector<Flight>& flights) {
  std::map<std::tuple<std::string, std::vector<int>, int>, size_t> places;
  for (const Flight& flight : flights) {
    flights_[flight.rank] = &flight;
    for (const Track& track : flight.tracks) {
      const auto [at, is_new] = places.try_emplace({track.axis, track.ranks, track.copy}, communicators_.size());
      if (is_new) communicators_.push_back({track.axis, track.ranks, std::vector<const Track*>(track.ranks.size())});
      Members& members = communicators_[at->second];
      const auto own = std::find(track.ranks.begin(), track.ranks.end(), flight.rank) - track.ranks.begin();
      if (own < static_cast<std::ptrdiff_t>(track.ranks.size())) members.tracks[static_cast<size_t>(own)] = &track;
    }
  }
  find_waits();
}

const Flight* Inquiry::flight(int rank) const {
  const auto found = flights_.find(rank);
  return found == flights_.end() ? nullptr : found->second;
}

double Inquiry::seconds_since(int rank, int64_t then_ns) const {
  const Flight* known = flight(rank);
  return known ? static_cast<double>(known->read_ns - then_ns) * 1e-9 : 0;
}

void Inquiry::find_waits() {
  for (const Members& members : communicators_) {
    for (size_t r = 0; r < members.ranks.size(); ++r) {
      if (!members.tracks[r]) continue;
      const int rank = members.ranks[r];
      // The call that a rank was in when it was killed is no wait.
      if (const Flight* known = flight(rank); !known->is_alive && known->end.empty()) continue;
      for (const CallRecord& record : members.tracks[r]->records) {
        if (!is_under_way(record)) continue;
        Wait wait{.members = &members, .record = &record, .rank = rank, .missing = {}, .unknown = {}};
        find_missing(wait, static_cast<int>(r));
        waits_.push_back(std::move(wait));
      }
    }
  }
}

void Inquiry::find_missing(Wait& wait, int rank) const {
  const Members& members = *wait.members;
  const Call& call = wait.record->call;
  for (size_t r = 0; r < members.ranks.size(); ++r) {
    const bool is_concerned = is_collective(call.kind) ? static_cast<int>(r) != rank : static_cast<int>(r) == call.peer;
    if (!is_concerned) continue;
    if (members.tracks[r]) {
      if (!has_come(*members.tracks[r], call, wait.record->turn, rank)) wait.missing.push_back(members.ranks[r]);
    } else {
      // A rank that has a flight but no record of this communicator has not made the call.
      (flight(members.ranks[r]) ? wait.missing : wait.unknown).push_back(members.ranks[r]);
    }
  }
}

std::string Inquiry::what(const Members& members, const CallRecord& record) const {
  const auto peer = static_cast<size_t>(record.call.peer);
  const bool has_peer = record.call.peer >= 0 && peer < members.ranks.size();
  return record.call.text(has_peer ? fmt::format("rank {}", members.ranks[peer]) : "");
}

std::string Inquiry::where(const Members& members, const CallRecord& record) const {
  return fmt::format("{} {} on axis {}", is_collective(record.call.kind) ? "operation" : "message", record.turn, members.axis);
}

std::string Inquiry::call_text(const Members& members, const CallRecord& record) const {
  return fmt::format("{}, {}", what(members, record), where(members, record));
}

std::string Inquiry::status(int rank) const {
  const Flight* known = flight(rank);
  if (!known) return "nothing is known of it";
  const auto in_call = [&](CallStage stage) {
    const auto found = std::find_if(waits_.begin(), waits_.end(),
                                    [&](const Wait& wait) { return wait.rank == rank && wait.record->stage == stage; });
    return found == waits_.end() ? "" : "it is in " + call_text(*found->members, *found->record);
  };
  if (known->is_stopped) return "its process is stopped";
  // If a call timed out, that is why the rank failed, so it comes before the recorded end.
  if (const std::string call = in_call(CallStage::timed_out); !call.empty()) return call;
  if (!known->end.empty()) return known->end;
  if (const std::string call = in_call(CallStage::running); !call.empty()) return call;
  if (!known->is_alive) return "its process is gone";
  const Members* last_members = nullptr;
  const CallRecord* last = nullptr;
  for (const Members& members : communicators_) {
    for (size_t r = 0; r < members.ranks.size(); ++r) {
      if (members.ranks[r] != rank || !members.tracks[r]) continue;
      for (const CallRecord& record : members.tracks[r]->records) {
        if (record.ended_ns > (last ? last->ended_ns : 0)) last = &record, last_members = &members;
      }
    }
  }
  if (!last) return "it has finished no call";
  return fmt::format("its last call was {}, {} {:.1f} s ago", call_text(*last_members, *last), name_of(last->stage),
                     seconds_since(rank, last->ended_ns));
}

std::string ranks_text(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i > 2) parts.push_back(fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    else
      for (size_t k = i; k < end; ++k) parts.push_back(fmt::format("{}", ranks[k]));
    i = end;
  }
  const std::string last = parts.empty() ? "" : parts.back();
  if (ranks.size() == 1) return "rank " + last;
  if (parts.size() < 2) return "ranks " + last;
  parts.pop_back();
  return fmt::format("ranks {} and {}", fmt::join(parts, ", "), last);
}

}  // namespace zt::comm
