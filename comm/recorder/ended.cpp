#include "ended.h"

#include <algorithm>
#include <span>

#include "box_memory.h"
#include "inquiry.h"
#include "report.h"

namespace zt::comm {

namespace {

// How long to wait if no record tells what the ended rank did: a message of it may still be on its way.
constexpr std::chrono::milliseconds kNoticeGrace(700);

// Returns whether the track is of this communicator. Names and rank lists in titles are truncated.
bool is_of(const Track& track, const Group& group, int copy) {
  const auto named = std::min(group.ranks.size(), kMostMembers);
  return track.copy == copy && track.axis == group.name.substr(0, RingTitle().axis.size() - 1) &&
         std::ranges::equal(track.ranks, std::span(group.ranks).first(named));
}

bool has_left(const Flight& flight) {
  return std::ranges::none_of(flight.tracks, [](const Track& track) { return track.is_open; });
}

}  // namespace

bool may_complete(const Flight& flight, const Group& group, int copy, const Call& call, uint64_t turn) {
  const auto track = std::ranges::find_if(flight.tracks, [&](const Track& other) { return is_of(other, group, copy); });
  // A rank with kMostRings communicators overwrites the records of those that are closed.
  if (track == flight.tracks.end()) return flight.tracks.size() >= kMostRings;
  return track->is_open || has_finished(*track, call, turn, group.rank);
}

bool EndWatch::is_needed(int peer) const {
  if (peer == group_.rank) return false;
  return !operation_ || is_collective(operation_->kind) || peer == operation_->peer;
}

void EndWatch::look() {
  std::vector<int> needed;
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (is_needed(peer)) needed.push_back(group_.ranks[static_cast<size_t>(peer)]);
  }
  const bool is_recorded = operation_ && copy_ >= 0;
  std::vector<int> ended;
  for (const Flight& flight : read_ended(needed)) {
    const bool is_lost =
        is_recorded ? !may_complete(flight, group_, copy_, operation_->call, operation_->turn) : has_left(flight);
    if (is_lost) ended.push_back(static_cast<int>(std::ranges::find(group_.ranks, flight.rank) - group_.ranks.begin()));
  }
  if (ended.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  if (suspected_ == decltype(suspected_){}) suspected_ = now;
  if (is_recorded || now - suspected_ >= kNoticeGrace) throw PeersEnded{std::move(ended)};
}

}  // namespace zt::comm
