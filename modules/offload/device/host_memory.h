// Data that lie in host memory between their uses on a device.
#pragma once

#include <memory>

#include "files/tier_memory.h"
#include "zt/process/world.h"

namespace zt::offload {

class HostMemory : public TierMemory {
 public:
  // Returns the bytes as they lie in this memory; see Homes::in_place.
  virtual HostBytes in_place(int64_t place, int64_t bytes) = 0;
};

// Reserves `needs.host` bytes of pinned memory, for `needs.device`. Throws OutOfMemory if there is not so much. `caller`: for
// messages.
std::shared_ptr<HostMemory> make_host_memory(const HomeNeeds& needs, World world, const std::string& caller);

}  // namespace zt::offload
