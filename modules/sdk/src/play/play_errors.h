// The errors of a play, in words.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "play/play_links.h"

namespace zt {

// Returns an error if the ranks made different calls on the communicator. The attributes of layers' actions may differ: each rank
// decides what it keeps.
std::optional<Refusal> compare_calls(const PlayedRanks& played, int group, const std::vector<std::pair<int, PostedCall>>& calls);

// Returns an error if the receiving action is not the counterpart of the sending one.
std::optional<Refusal> compare_ends(const PlayedRanks& played, const SentMessage& message, int receiver, int step,
                                    const PlayedEnd& end);

// Returns one error for each rank that waits for ever. `steps`: by played rank, the action in which it stands; -1: it has ended.
std::vector<Refusal> find_stuck(const PlayedRanks& played, const std::vector<int>& steps, const GroupCalls& groups,
                                const ChannelQueues& channels);

}  // namespace zt
