// A check for people who write actions: does an action change only what it declares?
#pragma once

#include <memory>

#include "zt/execute/executor.h"

namespace zt {

// Returns whether the environment variable ZT_CHECK_RESOURCES is 1. Throws Misuse for another value than 0 and 1.
bool checks_resources();

// Returns a handler that runs `handler` and compares the parameters, masters, gradients and optimizer states of all units before
// and after. It throws Misuse, naming the action and the resource, if one has changed that the action's kind does not declare to
// write. Slow: each action reads all of them. Memory that ranks of a node share is not compared, because others may write to it.
// Not for actions that move values between ranks: it waits for the work.
std::shared_ptr<ActionHandler> with_resource_check(std::shared_ptr<ActionHandler> handler);

}  // namespace zt
