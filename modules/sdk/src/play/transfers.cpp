#include "transfers.h"

#include <algorithm>
#include <limits>
#include <map>

namespace zt {

void TransferLanes::add(Transfer transfer, Done done) {
  Lane& lane = lanes_[transfer.lane];
  const size_t index = static_cast<size_t>(transfer.lane);
  const bool shares = transfer.seconds > 0 && transfer.use.any();
  if (lane.waiting.empty() && !shares) {
    const double begin = std::max(transfer.ready, lane.end);
    lane.end = begin + transfer.seconds;
    return done({begin, lane.end});
  }
  lane.waiting.push_back({std::move(transfer), std::move(done)});
  if (lane.waiting.size() > 1) return;
  busy_.push_back(index);
  start_first(lane);
}

void TransferLanes::start_first(Lane& lane) {
  Running& first = lane.waiting.front();
  first.begin = std::max(first.transfer.ready, lane.end);
  first.left = first.transfer.seconds;
}

// Of a link that transfers need more than once, each gets the part of which all together need one.
std::vector<double> TransferLanes::speeds(const std::vector<size_t>& running) const {
  std::map<int, LinkUse> needed;  // by rank
  for (const size_t lane : running) {
    const Transfer& transfer = lanes_[lane].waiting.front().transfer;
    for (const int rank : transfer.ranks) {
      needed[rank].inside += transfer.use.inside;
      needed[rank].across += transfer.use.across;
    }
  }
  std::vector<double> speeds;
  for (const size_t lane : running) {
    const Transfer& transfer = lanes_[lane].waiting.front().transfer;
    double most = 1;
    for (const int rank : transfer.ranks) {
      if (transfer.use.inside > 0) most = std::max(most, needed[rank].inside);
      if (transfer.use.across > 0) most = std::max(most, needed[rank].across);
    }
    speeds.push_back(1 / most);
  }
  return speeds;
}

bool TransferLanes::finish_next() {
  while (!busy_.empty()) {
    std::vector<size_t> running;
    double next = std::numeric_limits<double>::infinity();  // until then, the same transfers run
    for (const size_t lane : busy_) {
      const double begin = lanes_[lane].waiting.front().begin;
      if (begin <= now_) running.push_back(lane);
      else next = std::min(next, begin);
    }
    const std::vector<double> speed = speeds(running);
    size_t first_to_end = running.size();
    for (size_t i = 0; i < running.size(); ++i) {
      const double end = now_ + lanes_[running[i]].waiting.front().left / speed[i];
      if (end > next) continue;
      next = end;
      first_to_end = i;
    }
    for (size_t i = 0; i < running.size(); ++i) lanes_[running[i]].waiting.front().left -= (next - now_) * speed[i];
    now_ = next;
    if (first_to_end == running.size()) continue;
    end_first(running[first_to_end], next);
    return true;
  }
  return false;
}

void TransferLanes::end_first(size_t index, double end) {
  Lane& lane = lanes_[index];
  const Running ended = std::move(lane.waiting.front());
  lane.waiting.pop_front();
  lane.end = end;
  if (lane.waiting.empty()) std::erase(busy_, index);
  else start_first(lane);
  ended.done({ended.begin, end});
}

}  // namespace zt
