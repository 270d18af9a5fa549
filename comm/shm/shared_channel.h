// The channel of two ranks that share memory: processes of one machine, or threads. The sender copies a message into a slot and
// the receiver copies it out, so the Work of a send is done at once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "core/group.h"
#include "recorder/black_box.h"
#include "shm/shared_memory.h"
#include "zt/comm/channel.h"

namespace zt::comm {

// How an end waits and what it is called.
struct WaitSettings {
  std::string backend;                // for messages
  std::function<void()> check_abort;  // throws Aborted if another rank of the run failed
  std::chrono::milliseconds timeout;
};

// Makes this rank's end. whole: sends and receives a few bytes between the two ranks, so that they find each other; not used
// after the return. pair: plan.pair of its group. Collective over the two ranks. Throws Fault on both if they cannot share
// memory.
std::shared_ptr<Channel> make_shared_channel(const ChannelPlan& plan, Communicator& whole, Group pair, WaitSettings settings,
                                             const std::shared_ptr<BlackBox>& box);

// Makes an end over `memory`, which both ends map and which is zeroed: shared_channel_bytes(depth), and room to extend it. Waits
// for the other end. Ring: where the end records its calls.
std::shared_ptr<Channel> open_shared_channel(int depth, Group pair, std::shared_ptr<SharedMemory> memory, WaitSettings settings,
                                             std::shared_ptr<Ring> ring);
size_t shared_channel_bytes(int depth);

}  // namespace zt::comm
