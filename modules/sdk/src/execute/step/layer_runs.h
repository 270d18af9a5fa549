// Runs the layers: forward, recompute and backward of a position for a micro-batch.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "execute/step/layer_errors.h"
#include "execute/step/step_parts.h"
#include "zt/execute/executor.h"
#include "zt/model/model.h"

namespace zt {

// The works are those of exchange layers; of other layers all is done when the calls return.
// Threads: the rank's thread only.
class LayerRuns {
 public:
  // As StepParts, which it makes.
  LayerRuns(std::shared_ptr<const Model> model, StepState& state, std::vector<bool> runs);

  StepParts& parts() { return parts_; }
  // Begins a run of `program`, one per mode, over this rank's part of the global batch. `first_sample`: the place of its first
  // sample in the global batch. In a step by hand there are no micro-batches yet: MicroBatches::set gives them.
  void begin(std::vector<Batch> micro_batches, const Program& program, int64_t first_sample);

  Work forward(int position, int micro_batch, Keep keep);
  Work recompute(int position, int micro_batch);
  Work backward(int position, int micro_batch);
  // The same in two parts: the gradients of the inputs, and later those of the weights.
  Work backward_inputs(int position, int micro_batch);
  void backward_weights(int position, int micro_batch);
  // On a rank whose step has failed: takes part in the communication of an action of the role compute. Throws Fault if its layer
  // cannot.
  Work join(const Action& action);
  // Drops the values, graphs and sums of one micro-batch, of which only the forward has begun.
  void discard(int micro_batch);

  // Returns the named outputs of the last position; none if this rank does not run it.
  std::map<std::string, at::Tensor> outputs(int micro_batch) const;
  at::Device device() const { return device_; }  // of parameters and values
  bool is_exchange(int position) const { return exchanges_[position] != nullptr; }

 private:
  class LayerContext;
  struct Root {
    at::Tensor sum;
    Per per;
  };
  // The state that the forward of one (position, micro-batch) keeps for its backward. The outputs are in StepState::values, and
  // may be freed before.
  struct Forward {
    std::vector<at::Tensor> inputs;              // detached: leaves of the layer's own graph
    std::vector<torch::autograd::Edge> outputs;  // by output: where its gradient enters the graph; invalid if it needs none
    std::vector<Root> roots;
    std::shared_ptr<Context> context;                         // the layer's backward uses it, too
    bool defers = false;                                      // the backward leaves weight gradients for later
    std::vector<std::function<void()>> deferred;              // passed to Context::defer
    std::vector<std::pair<int, at::Tensor>> param_gradients;  // by parameter: computed, but not added yet
    ExchangeLayer::Backward exchange_backward;                // of an exchange layer; null if no graph is kept
    bool is_exchanged = false;                                // it has communicated
    bool is_joined = false;                                   // by `join`
    std::vector<at::Tensor> kept;                             // by ContextExtras::keep, for the recompute
    int readers_done = 0;  // forwards that have read the outputs (counted outside training only)
  };
  struct Made {
    std::vector<at::Tensor> outputs;
    Work work;
  };
  // A parameter of the layer at a position.
  struct LayerParam {
    const Param* param;
    int index;  // in ModelInfo::params
  };

  const PositionInfo& position_info(int position) const { return state_.model->positions[position]; }
  int index_of(int position, const Param& param) const;
  Forward& forward_of(int position, int micro_batch) {
    return forwards_[static_cast<size_t>(position) * parts_.batches.count() + micro_batch];
  }
  template <class Body>
  auto with_name(int position, int micro_batch, Body&& body) const {
    const PositionInfo& info = position_info(position);
    return with_layer_name(info.name, info.kind, parts_.batches.count() > 1 ? micro_batch : -1, std::forward<Body>(body));
  }
  void begin_layer(int position, int micro_batch, bool is_recompute, Forward& forward);
  std::vector<at::Tensor> run_layer(int position, Forward& forward);
  Made run(int position, int micro_batch, bool is_recompute, Keep keep);
  Made start_exchange(int position, Keep keep, Forward& forward);
  Work backward_exchange(int position, int micro_batch, Forward& forward);
  Work join_forward(const Action& action, Forward& forward);
  void count_readers(const Program& program);
  static void keep_graph(const std::vector<at::Tensor>& outputs, Forward& forward);
  void release_read_values(int position, int micro_batch);
  Work backward_layer(int position, int micro_batch, Forward& forward);

  std::shared_ptr<const Model> model_;
  StepState& state_;
  std::vector<bool> runs_;
  StepParts parts_;
  at::Device device_ = at::kCPU;
  at::ScalarType param_type_ = at::kFloat;
  std::vector<std::vector<LayerParam>> layer_params_;  // by position
  std::vector<std::vector<int>> trained_params_;       // by position: indices of the trainable ones
  std::vector<ExchangeLayer*> exchanges_;              // by position: null for other layers
  std::set<const c10::StorageImpl*> shared_storages_;  // buffers of parameters that several units share
  std::map<Mode, std::vector<int>> readers_;           // by position: forwards after which its outputs are dropped
  std::vector<Forward> forwards_;
};

}  // namespace zt
