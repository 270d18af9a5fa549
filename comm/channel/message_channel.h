// The channel of two ranks that only send messages to each other, as on "mpi".
//
// A message travels as a head of 2 KiB, which has the shapes and, if they fit, the data; longer shapes and tensors follow it.
// When the receiver takes a message it sends one byte back. A long message is sent by the communicator's thread, so the sender
// does not wait for the receiver, and its data moves when the receiver takes it.
#pragma once

#include <memory>

#include "core/group.h"
#include "zt/comm/channel.h"

namespace zt::comm {

// pair: the two ranks; rank 0 sends. messages, answers: communicators in host memory over the two ranks, which nothing else may
// use; rank 0 sends messages, and rank 1 answers. A message of 2 KiB must be sendable without its receiver.
std::shared_ptr<Channel> make_message_channel(Group pair, int depth, std::shared_ptr<Communicator> messages,
                                              std::shared_ptr<Communicator> answers);

}  // namespace zt::comm
