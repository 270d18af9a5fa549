// The communicators and channels of a play.
#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "play/player.h"

namespace zt {

// A call that a rank has made on a communicator and that is not over.
struct PostedCall {
  int step = 0;         // index of the action
  double time = 0;      // at which the rank arrived
  double transfer = 0;  // seconds that it takes then
  LinkUse use = {};     // meanwhile
  int work = -1;        // the rank's number of the work in flight; -1: the rank waits
};

// The calls on all communicators. On each they run in the order in which the ranks make them.
class GroupCalls {
 public:
  explicit GroupCalls(const PlayedRanks& played);
  // Adds a call. Returns whether all ranks have made the communicator's next call now.
  bool post(int group, int played, const PostedCall& call);
  // Removes the communicator's next call. Returns it as each rank made it.
  std::vector<std::pair<int, PostedCall>> take(int group);
  bool has_posted(int group, int played) const;

 private:
  const PlayedRanks& played_;
  std::vector<std::vector<std::deque<PostedCall>>> posted_;  // by group, then by member
};

// A message that the receiver has not taken.
struct SentMessage {
  int step = 0;                        // index of the sender's action
  int depth = 1;                       // of the channel, as the sender declares it
  std::optional<double> arrival = {};  // if it is known
};

// The messages of all channels.
class ChannelQueues {
 public:
  explicit ChannelQueues(const PlayedRanks& played) : channels_(played.channels.size()) {}
  // Returns whether the channel has a free slot, and if so moves `now` to the time since when it has.
  bool await_slot(const PlayedEnd& end, double& now) const;
  // Adds a message. Returns its number in the channel.
  size_t send(const PlayedEnd& end, int step);
  void arrive(const PlayedEnd& end, size_t message, double time);
  // Returns the next message; null if none has arrived.
  const SentMessage* next(const PlayedEnd& end) const;
  void take(const PlayedEnd& end, double now);

 private:
  struct Channel {
    std::deque<SentMessage> messages;
    std::vector<double> taken;  // times at which messages were taken
    size_t sent = 0;
  };
  std::vector<Channel> channels_;
};

}  // namespace zt
