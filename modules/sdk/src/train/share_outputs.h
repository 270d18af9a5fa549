// Gives the outputs of the last position to the ranks that do not run it.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "zt/comm/comm.h"

namespace zt {

using Outputs = std::map<std::string, at::Tensor>;

// Returns the outputs of the first rank of `comm` that has any, on all ranks: `mine` on that rank, copies elsewhere. Collective.
Outputs share_outputs(Outputs mine, Communicator& comm);

}  // namespace zt
