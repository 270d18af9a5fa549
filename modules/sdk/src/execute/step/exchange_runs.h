// Runs exchange layers: forward, backward, and on a rank whose step has failed.
#pragma once

#include <utility>
#include <vector>

#include "execute/step/step_parts.h"

namespace zt {

// What a forward has made: one tensor per output, and the work after which they hold numbers.
struct MadeOutputs {
  std::vector<at::Tensor> tensors;
  Work work = {};
};

// Threads: the rank's thread only.
class ExchangeRuns {
 public:
  explicit ExchangeRuns(StepParts& parts) : parts_(parts) {}

  // Begins the forward of the position, whose context and inputs the Forward has.
  MadeOutputs forward(int position, int micro_batch, Keep keep);
  Work backward(int position, int micro_batch);
  // Takes part, with any numbers, in the communication of a forward, of the recompute of a joined forward, or of a backward.
  Work join(const Action& action);

 private:
  Work join_forward(const Action& action, Forward& forward);

  StepParts& parts_;
};

}  // namespace zt
