// Backend "local": the ranks are threads of one process. The receiver copies a message directly from the sender's memory.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "messages/transport.h"
#include "zt/process/world.h"

namespace zt::comm {

// Makes this rank's side of a communicator over `group`. All ranks of the group call it. Groups of the same ranks must be made in
// the same order on each rank. `threads` may be null for a group of one.
std::unique_ptr<Transport> make_local_transport(std::shared_ptr<ThreadGroup> threads, Group group);

}  // namespace zt::comm
