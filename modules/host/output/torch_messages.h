// Warnings and log messages of LibTorch.
#pragma once

#include "zt/process/world.h"

namespace zt::host {

// Sends the LibTorch warnings of this thread to zt.log, and hides LibTorch's own log below errors: its memory profiler, which
// counts activations, logs every thousandth tensor that is older than a step. Set TORCH_CPP_LOG_LEVEL to show that log.
void route_torch_messages(const World& world);

}  // namespace zt::host
