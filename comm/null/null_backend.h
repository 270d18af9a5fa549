// Any rank of any world, alone: knows its size and moves nothing between ranks. For dry runs and planning.
#pragma once

#include <memory>

#include "core/backend.h"

namespace zt::comm {

// Every operation succeeds at once, as if all other ranks had passed what this rank passes, each part of a sum but its own
// being zero: all_reduce copies, all_gather repeats, recv leaves zeros. Results are defined, and cost no communication.
// `shares_memory`: it stands in for a backend whose ranks do.
std::unique_ptr<Backend> make_null_backend(Group group, bool shares_memory = false);

}  // namespace zt::comm
