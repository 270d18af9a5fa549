// GPUs over NCCL: operations run on a stream of their own, in order; waiting is between streams, not on the host.
#pragma once

#include <memory>

#include "core/backend.h"
#include "nccl/api.h"

namespace zt::comm {

// Makes this rank's side; called by all ranks of the group. The first form uses the current GPU of the calling thread.
//
// host: a communicator in host memory over the same ranks, used by nobody else. It carries NCCL's identifier and, where calls are
// checked, what every rank calls; its time-out becomes this one's.
// order: whether all_reduce, reduce_scatter and reduce add up in the fixed tree (fixed_order.h) or as NCCL does. NCCL has no
// 16-bit integers, which are a Misuse then, and decides what the maximum or minimum of a NaN and a number is. Errors: Fault if
// NCCL is missing or older than 2.19, Misuse without a GPU.
std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Communicator> host, Group group, SumOrder order);
std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Communicator> host, Group group, SumOrder order, const NcclApi& api,
                                           std::shared_ptr<const StreamApi> streams);

// The side of one of several groups that the ranks of `parent` fall into: NCCL makes it faster than from nothing, and with
// connections that `parent` has. Collective over the ranks of `parent`, whose order, check and time-out it has. host: as above,
// over `group`. Misuse if `parent` is not an nccl backend.
std::unique_ptr<Backend> split_nccl_backend(Backend& parent, std::shared_ptr<Communicator> host, Group group);

}  // namespace zt::comm
