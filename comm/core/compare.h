// Whether the ranks of a group made calls that belong together.
#pragma once

#include <span>

#include "call.h"
#include "group.h"

namespace zt::comm {

// calls: by group rank. Fault, with the same words on every rank, if they differ: who called what, and what the most called.
void compare_calls(std::span<const Call> calls, const Group& group);

// Of a message, at its receiver: Fault if what was sent is not what is received.
void compare_message(const Call& sent, const Call& received, const Group& group);

}  // namespace zt::comm
