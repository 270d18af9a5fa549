// Checks that the ranks of a group made calls that fit together.
#pragma once

#include <span>

#include "call.h"
#include "group.h"

namespace zt::comm {

// calls: one per rank, by group rank. Throws Fault if they differ. The message is the same on every rank: it names a rank whose
// call differs, its call, and the most frequent call.
void compare_calls(std::span<const Call> calls, const Group& group);

// Checks a message on the receiving rank. Throws Fault unless `sent` is a send with the count and type of `received`.
void compare_message(const Call& sent, const Call& received, const Group& group);

}  // namespace zt::comm
