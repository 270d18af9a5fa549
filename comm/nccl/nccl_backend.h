// Backend "nccl": GPUs. Operations run in order on a stream of their own. Streams wait for each other; the host does not wait.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "nccl/api.h"

namespace zt::comm {

// Makes this rank's side. Collective over the group. The first form uses the rank's GPU (api.h).
//
// host: a communicator in host memory over the same ranks, which nothing else may use. It sends NCCL's identifier and, for
// checked operations, the calls of the ranks. set_timeout applies to it, too.
// order: whether all_reduce, reduce_scatter and reduce add along the fixed tree (fixed_order.h) or in NCCL's order. In NCCL's
// order, 16-bit integers are a Misuse, and NCCL decides what the maximum or minimum of a NaN and a number is.
// Throws Fault if NCCL is missing or older than 2.19, and Misuse without a GPU.
std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Communicator> host, Group group, SumOrder order, LocalRank here);
std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Communicator> host, Group group, SumOrder order, const NcclApi& api,
                                           std::shared_ptr<const StreamApi> streams);

}  // namespace zt::comm
