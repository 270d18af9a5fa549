// What a rank gives and takes in each collective, as data. Pure, but for all_to_all, where the ranks' splits are in the notices.
#pragma once

#include "core/operation.h"
#include "shm/pull.h"

namespace zt::comm {

// Whether what this rank gives fits into its notice. The same on all ranks, as it depends on the call alone; but for all_to_all,
// where each rank may give another amount.
bool is_inline(const Operation& operation, int size);

// all_to_all: what the rank gives to and expects of each rank, in bytes, into the notice.
void write_splits(const Operation& operation, Notice& notice);

// For all kinds but all_reduce, send, recv and barrier. After team.enter(). Fault if the splits of two ranks do not belong
// together.
Pull plan(const Operation& operation, const Team& team);

}  // namespace zt::comm
