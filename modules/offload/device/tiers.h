// The memories of a rank besides its device's.
#pragma once

#include <memory>

#include "files/swap_memory.h"
#include "zt/execute/homes.h"

namespace zt::offload {

// Returns homes in files, if `has_files`, and in host memory, for ranks whose device has memory of its own. Collective and errors
// as make_swap_memory.
std::shared_ptr<Homes> make_tiers(const DiskOptions& options, bool has_files, const HomeNeeds& needs);

}  // namespace zt::offload
