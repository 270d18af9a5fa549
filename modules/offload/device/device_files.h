// Data of a device that lie in files between their uses.
#pragma once

#include <memory>

#include "files/tier_memory.h"

namespace zt::offload {

// Returns the memory of `files`, which read and write host memory, for tensors on the device as well. These pass through pinned
// memory, as much as is under way.
std::shared_ptr<TierMemory> make_device_files(std::shared_ptr<TierMemory> files, at::Device device);

}  // namespace zt::offload
