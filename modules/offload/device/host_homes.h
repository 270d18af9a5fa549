// Data that lie in host memory between their uses on a device.
#pragma once

#include <memory>

#include "zt/execute/homes.h"
#include "zt/process/world.h"

namespace zt::offload {

// Reserves `needs.host` bytes of pinned memory, for `needs.device`. Throws OutOfMemory if there is not so much. `caller`: for
// messages.
std::shared_ptr<Homes> make_host_homes(const HomeNeeds& needs, World world, const std::string& caller);

}  // namespace zt::offload
