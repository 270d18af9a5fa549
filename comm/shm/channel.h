// send and recv in shared memory.
#pragma once

#include "core/operation.h"
#include "shm/team.h"
#include "shm/windows.h"

namespace zt::comm {

// A long tensor in a window is read in place, and the send returns when it was; others travel through two stages of the pair, and
// the send returns when the last piece is in one. Fault at the receiver when the lengths differ.
void send(Team& team, const Windows& windows, const Operation& operation);
void recv(Team& team, const Windows& windows, const Operation& operation);

}  // namespace zt::comm
