// send and recv in shared memory.
#pragma once

#include "core/operation.h"
#include "shm/team.h"
#include "shm/windows.h"

namespace zt::comm {

// A long tensor in a window is read in place, and the send returns when the receiver has read it. Any other tensor goes in chunks
// through the two stages of the pair, and the send returns when the last chunk is staged. Throws Fault on the receiver if the
// count or the type differ.
void send(Team& team, const Windows& windows, const Operation& operation);
void recv(Team& team, const Windows& windows, const Operation& operation);

}  // namespace zt::comm
