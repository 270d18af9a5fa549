// Ranks that are threads of one process: a message is copied by its receiver straight from the sender's memory.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "messages/transport.h"
#include "zt/process/world.h"

namespace zt::comm {

// Makes this rank's side of a communicator over `group`. Called by all its ranks, in the same order for the same ranks.
// threads may be null for a group of one.
std::unique_ptr<Transport> make_local_transport(std::shared_ptr<ThreadGroup> threads, Group group);

}  // namespace zt::comm
