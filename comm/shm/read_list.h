// Makes the read list of each collective. It depends on the operation alone; for all_to_all also on the splits in the notices.
#pragma once

#include "core/operation.h"
#include "shm/pull.h"

namespace zt::comm {

// Returns whether the data that this rank gives fits into its notice. The result is equal on all ranks, except for all_to_all,
// where each rank may give a different amount.
bool is_inline(const Operation& operation, int size);

// Writes the splits of an all_to_all into the notice: the bytes that this rank gives to each rank and expects from each rank.
void write_splits(const Operation& operation, Notice& notice);

// Takes all kinds but all_reduce, send, recv and barrier. Call it after team.enter(). Throws Fault if ranks' splits do not match.
ReadList make_read_list(const Operation& operation, const Team& team);

}  // namespace zt::comm
