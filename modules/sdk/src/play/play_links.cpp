#include "play_links.h"

#include <algorithm>

namespace zt {

GroupCalls::GroupCalls(const PlayedRanks& played) : played_(played) {
  for (const PlayedGroup& group : played.groups) posted_.emplace_back(group.members.size());
}

bool GroupCalls::post(int group, int played, const PostedCall& call) {
  auto& posted = posted_[group];
  posted[played_.groups[group].member_of(played)].push_back(call);
  return std::ranges::none_of(posted, &std::deque<PostedCall>::empty);
}

std::vector<std::pair<int, PostedCall>> GroupCalls::take(int group) {
  std::vector<std::pair<int, PostedCall>> calls;
  for (size_t member = 0; member < posted_[group].size(); ++member) {
    auto& posted = posted_[group][member];
    calls.emplace_back(played_.groups[group].members[member].played, posted.front());
    posted.pop_front();
  }
  return calls;
}

bool GroupCalls::has_posted(int group, int played) const {
  const int member = played_.groups[group].member_of(played);
  return member >= 0 && !posted_[group][member].empty();
}

bool ChannelQueues::await_slot(const PlayedEnd& end, double& now) const {
  const Channel& channel = channels_[end.channel];
  const auto depth = static_cast<size_t>(end.depth);
  if (channel.sent < depth) return true;
  if (channel.taken.size() <= channel.sent - depth) return false;
  now = std::max(now, channel.taken[channel.sent - depth]);
  return true;
}

size_t ChannelQueues::send(const PlayedEnd& end, int step) {
  Channel& channel = channels_[end.channel];
  channel.messages.push_back({step, end.depth});
  return channel.sent++;
}

void ChannelQueues::arrive(const PlayedEnd& end, size_t message, double time) {
  Channel& channel = channels_[end.channel];
  channel.messages[message - channel.taken.size()].arrival = time;
}

const SentMessage* ChannelQueues::next(const PlayedEnd& end) const {
  const auto& messages = channels_[end.channel].messages;
  return messages.empty() || !messages.front().arrival ? nullptr : &messages.front();
}

void ChannelQueues::take(const PlayedEnd& end, double now) {
  channels_[end.channel].messages.pop_front();
  channels_[end.channel].taken.push_back(now);
}

}  // namespace zt
