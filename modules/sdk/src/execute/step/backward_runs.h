// Runs the backwards of layers, whole or in two parts.
#pragma once

#include "execute/step/exchange_runs.h"

namespace zt {

// Threads: the rank's thread only.
class BackwardRuns {
 public:
  BackwardRuns(StepParts& parts, ExchangeRuns& exchanges) : parts_(parts), exchanges_(exchanges) {}

  Work backward(int position, int micro_batch);
  // The same in two parts: the gradients of the inputs, and later those of the weights.
  Work backward_inputs(int position, int micro_batch);
  void backward_weights(int position, int micro_batch);

 private:
  struct Graph;
  Graph graph_of(int position, int micro_batch, const Forward& forward);
  Work run(int position, int micro_batch);

  StepParts& parts_;
  ExchangeRuns& exchanges_;
};

}  // namespace zt
