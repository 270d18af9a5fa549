#include "play_links.h"

#include <algorithm>

namespace zt {

GroupCalls::GroupCalls(const PlayedRanks& played) : played_(played), groups_(played.groups.size()) {
  for (size_t group = 0; group < groups_.size(); ++group) groups_[group].posted.resize(played.groups[group].members.size());
}

bool GroupCalls::post(int group, int played, const PostedCall& call) {
  auto& posted = groups_[group].posted;
  posted[played_.groups[group].member_of(played)].push_back(call);
  return std::ranges::none_of(posted, &std::deque<PostedCall>::empty);
}

std::vector<std::pair<int, PostedCall>> GroupCalls::complete(int group) {
  Group& mine = groups_[group];
  std::vector<std::pair<int, PostedCall>> calls;
  double begin = mine.last.end, transfer = 0;
  for (size_t member = 0; member < mine.posted.size(); ++member) {
    const PostedCall call = mine.posted[member].front();
    mine.posted[member].pop_front();
    begin = std::max(begin, call.time);
    transfer = std::max(transfer, call.transfer);
    calls.emplace_back(played_.groups[group].members[member].played, call);
  }
  mine.last = {begin, begin + transfer};
  return calls;
}

bool GroupCalls::has_posted(int group, int played) const {
  const int member = played_.groups[group].member_of(played);
  return member >= 0 && !groups_[group].posted[member].empty();
}

bool ChannelQueues::await_slot(const PlayedEnd& end, double& now) const {
  const Channel& channel = channels_[end.channel];
  const auto depth = static_cast<size_t>(end.depth);
  if (channel.sent < depth) return true;
  if (channel.taken.size() <= channel.sent - depth) return false;
  now = std::max(now, channel.taken[channel.sent - depth]);
  return true;
}

PlaySpan ChannelQueues::send(const PlayedEnd& end, int step, double now, double transfer) {
  Channel& channel = channels_[end.channel];
  const double begin = std::max(now, channel.last_end);
  channel.last_end = begin + transfer;
  channel.messages.push_back({step, end.depth, channel.last_end});
  ++channel.sent;
  return {begin, channel.last_end};
}

const SentMessage* ChannelQueues::next(const PlayedEnd& end) const {
  const auto& messages = channels_[end.channel].messages;
  return messages.empty() ? nullptr : &messages.front();
}

void ChannelQueues::take(const PlayedEnd& end, double now) {
  channels_[end.channel].messages.pop_front();
  channels_[end.channel].taken.push_back(now);
}

}  // namespace zt
