// The channel of two GPUs. The shapes of messages travel over a channel in host memory, which also bounds the depth; the data
// travels over an NCCL communicator of the two ranks, on its stream.
#pragma once

#include <memory>

#include "core/group.h"
#include "zt/comm/channel.h"

namespace zt::comm {

// pair: the two ranks; rank 0 sends. host: a channel in host memory between them. data: an nccl communicator over them. Nothing
// else may use these two.
std::shared_ptr<Channel> make_nccl_channel(Group pair, at::Device device, std::shared_ptr<Channel> host,
                                           std::shared_ptr<Communicator> data);

}  // namespace zt::comm
