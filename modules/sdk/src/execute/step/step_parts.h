// What the actions of a step share besides StepState.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "execute/movement/move_values.h"
#include "execute/step/gradients.h"
#include "execute/step/input_gradients.h"
#include "execute/step/layer_table.h"
#include "execute/step/micro_batches.h"
#include "execute/step/nonfinite_search.h"
#include "execute/step/step_scale.h"
#include "execute/step/step_stats.h"
#include "zt/execute/executor.h"

namespace zt {

// A forward keeps these for its backward. Its outputs are in StepState::values, and may be freed before the backward.
struct Forward {
  struct Root {
    at::Tensor sum;
    Per per;
  };
  std::vector<at::Tensor> inputs;               // detached: leaves of the layer's own graph
  std::vector<torch::autograd::Edge> outputs;   // by output: where its gradient enters the graph; invalid if it needs none
  std::vector<Root> roots;                      // of loss terms
  std::map<std::string, at::Tensor> fields;     // of the batch, of which gradients are wanted: leaves of the layer's own graph
  std::shared_ptr<Context> context;             // the layer's backward uses it, too
  bool defers = false;                          // the backward leaves weight gradients for later
  std::vector<std::function<void()>> deferred;  // passed to Context::defer
  std::vector<std::pair<int, at::Tensor>> param_gradients;  // by parameter: computed, but not added yet
  ExchangeLayer::Backward exchange_backward;                // of an exchange layer; null if no graph is kept
  bool is_exchanged = false;                                // it has communicated
  bool is_joined = false;                                   // by join_exchange
  std::vector<at::Tensor> kept;                             // by ContextExtras::keep, for the recompute
  int readers_done = 0;                                     // forwards that have read the outputs (counted outside training only)
};

class Forwards {
 public:
  void begin(int positions, int micro_batches) {
    micro_batches_ = micro_batches;
    all_.clear();
    all_.resize(static_cast<size_t>(positions) * micro_batches);
  }
  Forward& at(int position, int micro_batch) { return all_[static_cast<size_t>(position) * micro_batches_ + micro_batch]; }

 private:
  int micro_batches_ = 0;
  std::vector<Forward> all_;
};

struct StepParts {
  // As LayerTable.
  StepParts(std::shared_ptr<const Model> model, StepState& state, std::vector<bool> runs)
      : state(state),
        layers(std::move(model), state, std::move(runs)),
        batches(layers, state),
        stats(layers, state),
        gradients(layers, state) {}

  StepState& state;
  Mode mode = Mode::train;
  LayerTable layers;
  MicroBatches batches;
  Forwards forwards;
  MovedValues moved;
  StepScale scale;
  StepStats stats;
  NonfiniteSearch search;
  Gradients gradients;
  InputGradients input_gradients;
};

}  // namespace zt
