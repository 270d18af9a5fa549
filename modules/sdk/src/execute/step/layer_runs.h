// Runs the layers: forward, recompute and backward of a position for a micro-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "execute/step/exchange_runs.h"

namespace zt {

// The works are those of exchange layers; of other layers all is done when the calls return.
// Threads: the rank's thread only.
class LayerRuns {
 public:
  // As StepParts, which it makes.
  LayerRuns(std::shared_ptr<const Model> model, StepState& state, std::vector<bool> runs)
      : state_(state), parts_(std::move(model), state, std::move(runs)) {}

  StepParts& parts() { return parts_; }
  // Begins a run of `program`, one per mode, over this rank's part of the global batch. `first_sample`: the place of its first
  // sample in the global batch. In a step by hand there are no micro-batches yet: MicroBatches::set gives them.
  void begin(std::vector<Batch> micro_batches, const RankProgram& program, int64_t first_sample);

  Work forward(int position, int micro_batch, Keep keep);
  Work recompute(int position, int micro_batch);
  // On a rank whose step has failed: takes part in the communication of an action of the role compute. Throws Fault if its layer
  // cannot.
  Work join(const Action& action);
  // Drops the values, graphs and sums of one micro-batch, of which only the forward has begun.
  void discard(int micro_batch);

  // Returns the named outputs of the last position; none if this rank does not run it.
  std::map<std::string, at::Tensor> outputs(int micro_batch) const;

 private:
  std::vector<at::Tensor> run_layer(int position, const Forward& forward) const;
  MadeOutputs run(int position, int micro_batch, bool is_recompute, Keep keep);
  void take_inputs(int position, int micro_batch, Keep keep);
  void count_readers(const RankProgram& program);
  void release_read_values(int position, int micro_batch);

  StepState& state_;
  StepParts parts_;
  std::map<Mode, std::vector<int>> readers_;  // by position: forwards after which its outputs are dropped
};

// Run the backward of a position, or the two parts of it: the gradients of the inputs, and later those of the weights.
Work backward(StepParts& parts, int position, int micro_batch);
Work backward_inputs(StepParts& parts, int position, int micro_batch);
Work backward_weights(StepParts& parts, int position, int micro_batch);

}  // namespace zt
