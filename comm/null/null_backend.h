// Backend "null": one rank of any world, without the other ranks. It moves no data. For dry runs and `ztoolkit plan`.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace zt::comm {

// Every operation completes at once, with a defined result: a reduction counts zeros for the other ranks, and a gather repeats
// the input of this rank. So all_reduce copies, and recv and all_to_all write zeros.
// shares_memory: as the backend that it stands for.
std::unique_ptr<Backend> make_null_backend(Group group, bool shares_memory = false);

}  // namespace zt::comm
