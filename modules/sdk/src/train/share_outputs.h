// Gives the outputs of the last position to the ranks that do not run it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>

#include "zt/comm/comm.h"

namespace zt {

using Outputs = std::map<std::string, at::Tensor>;

// Returns the outputs of the first rank that has any, on all ranks: `mine` on that rank, copies elsewhere. comm, control: the
// communicators of an axis, as in Axis. device: where copies are made, that of the outputs. Collective.
Outputs share_outputs(Outputs mine, Communicator& comm, Communicator& control, at::Device device);

// Returns reduce(mine) of the first rank that has outputs, on all ranks. If it throws there, all ranks throw: Misuse with its
// message on the others. Collective over `control`.
Value share_reduced(const Outputs& mine, const std::function<Value(const Outputs&)>& reduce, Communicator& control);

}  // namespace zt
