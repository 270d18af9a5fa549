// What LibTorch has to say.
#pragma once

#include "zt/process/world.h"

namespace zt::host {

// From here on warnings of LibTorch on this thread come as zt.log's, and what it logs below errors is left out: its memory
// profiler, which counts activations, complains of every thousandth tensor that is older than a step. TORCH_CPP_LOG_LEVEL shows
// it again.
void route_torch_messages(const World& world);

}  // namespace zt::host
