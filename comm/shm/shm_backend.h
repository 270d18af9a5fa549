// Backend "shm": the ranks of one machine share memory. Buffers from `allocate` are read in place, others go through stages.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "zt/comm/comm.h"

namespace zt::comm {

constexpr int kMostShmRanks = 128;  // the splits of an all_to_all over this many ranks fit into a notice

// Makes the backend over the ranks of `first_contact`, which is not used after the return. Collective. Throws Fault on all ranks
// if they cannot share memory (two machines, two users) or if there is not enough. check_abort throws Aborted if another rank of
// the run failed.
std::unique_ptr<Backend> make_shm_backend(Communicator& first_contact, Group group, std::function<void()> check_abort);

}  // namespace zt::comm
