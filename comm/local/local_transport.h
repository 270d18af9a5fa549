// Backend "local": the ranks are threads of one process. The receiver copies a message directly from the sender's memory.
#pragma once

#include <functional>
#include <memory>

#include "messages/transport.h"
#include "zt/process/world.h"

namespace zt::comm {

// Makes this rank's side of a communicator over `group`. All ranks of the group call it. Groups of the same ranks must be made in
// the same order on each rank. `threads` may be null for a group of one.
std::unique_ptr<Transport> make_local_transport(std::shared_ptr<ThreadGroup> threads, Group group);

// Returns a function that throws Aborted once a rank of `threads` has failed. `threads` may be null: then it does nothing.
std::function<void()> abort_check(std::shared_ptr<ThreadGroup> threads);

}  // namespace zt::comm
