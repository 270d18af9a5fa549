// Runs exchange layers: forward, backward, and on a rank whose step has failed.
#pragma once

#include <vector>

#include "execute/step/step_parts.h"

namespace zt {

// What a forward has made: one tensor per output, and the work after which they hold numbers.
struct MadeOutputs {
  std::vector<at::Tensor> tensors;
  Work work = {};
};

// Begins the forward of the position, whose context and inputs the Forward has.
MadeOutputs exchange_forward(StepParts& parts, int position, int micro_batch, Keep keep);
Work exchange_backward(StepParts& parts, int position, int micro_batch);
// Takes part, with any numbers, in the communication of a forward, of the recompute of a joined forward, or of a backward.
Work join_exchange(StepParts& parts, const Action& action);

}  // namespace zt
