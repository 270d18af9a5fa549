// GPUs over NCCL: operations run on a stream of their own, in order; waiting is between streams, not on the host.
#pragma once

#include <memory>

#include "backend.h"
#include "nccl/api.h"

namespace zt::comm {

// Makes this rank's side over the group of `bootstrap`, a backend in host memory that carries NCCL's identifier to all ranks.
// Called by all of them. The first form uses the current GPU of the calling thread.
std::unique_ptr<Backend> make_nccl_backend(std::unique_ptr<Backend> bootstrap);
std::unique_ptr<Backend> make_nccl_backend(std::unique_ptr<Backend> bootstrap, const NcclApi& api,
                                           std::shared_ptr<const StreamApi> streams);

}  // namespace zt::comm
