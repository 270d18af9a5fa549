// Ranks of one machine that share memory: buffers from `allocate` are read where they are, others go through stages.
#pragma once

#include <memory>

#include "core/backend.h"
#include "zt/comm/comm.h"

namespace zt::comm {

constexpr int kMostShmRanks = 128;  // what a rank of an all_to_all says to each fits into its notice

// Over the ranks of `first_contact`, which is used here only. Collective. Fault, on all ranks alike, when the ranks cannot share
// memory (two machines, two users) or there is not enough.
std::unique_ptr<Backend> make_shm_backend(Communicator& first_contact, Group group, std::function<void()> check_abort);

}  // namespace zt::comm
