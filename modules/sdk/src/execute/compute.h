// The data that F, R and B share within a step: the batch, the values between positions, the loss terms, the gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gradients.h"
#include "step_sums.h"
#include "zt/base/error.h"
#include "zt/execute/executor.h"
#include "zt/model/model.h"

namespace zt {

// Selects the values that a forward keeps for its backward.
enum class Keep : uint8_t { graph, inputs, none };
Keep parse_keep(const std::string& name);

// The gradient with which the backward of a loss term starts.
struct Seeds {
  double token = 1;
  double sample = 1;
  double of(Per per) const { return per == Per::token ? token : sample; }
};

class ComputeState {
 public:
  // `model`: the layers of `state.model`. `runs`: by position, whether this rank runs it; see positions_run.
  ComputeState(std::shared_ptr<Model> model, StepState& state, std::vector<bool> runs);

  // Begins a run of `program`, one per mode, over this rank's part of the global batch. `first_sample`: the place of its first
  // sample in the global batch. In a step by hand there are no micro-batches yet: begin_micro_batch gives them.
  void begin(std::vector<Batch> micro_batches, const Program& program, int64_t first_sample);
  void begin_micro_batch(const Batch& batch, int micro_batch, int64_t first_sample);

  // The works are those of exchange layers; of other layers all is done when the calls return.
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

  // Return the valid tokens and the samples of this rank's batch, or of one micro-batch, counted by the layers that it runs.
  // Throw Misuse if two loss layers count differently.
  Counts count() const;
  Counts count(int micro_batch) const;
  // Returns this rank's sums so far of losses and statistics.
  StepSums& sums() { return sums_; }
  std::vector<LossSum> losses() const { return sums_.losses(model_info()); }
  // Calls Layer::update for the position's layer, once per step. `stats`: of all layers, as StepState has them.
  void update_layer(int position, const Stats& stats);
  // Returns what the layers' reports show of the statistics, under the names "LAYER.NAME".
  Stats report(const Stats& stats) const;
  // Adds the time of exchanges since the last call to their statistics.
  void add_exchange_seconds();
  // Returns the bytes that layers have noted as sent since the last call, by axis.
  std::map<std::string, SentBytes> take_sent() { return std::exchange(sent_, {}); }
  // Turns the search for values that are not finite on or off; see Context::watch. `take_nonfinite` returns the first of them
  // since the last call, in words; empty: there is none.
  void search_nonfinite(bool is_on) { searches_nonfinite_ = is_on; }
  std::string take_nonfinite() { return std::exchange(nonfinite_, {}); }
  // Returns the named outputs of the last position; none if this rank does not run it.
  std::map<std::string, at::Tensor> outputs(int micro_batch) const;
  // Returns the micro-batches of this run.
  // Whether a layer of the model, on any rank, needs micro-batches of the same shapes on all ranks.
  bool needs_equal_batches() const;
  std::vector<Batch> fields() const;
  void set_seeds(Seeds seeds) { seeds_ = seeds; }
  Seeds seeds() const { return seeds_; }
  Gradients& gradients() { return gradients_; }
  Mode mode() const { return mode_; }
  at::Device device() const { return device_; }  // of parameters and values
  int micro_batches() const { return micro_batches_; }
  bool is_exchange(int position) const { return exchanges_[position] != nullptr; }

 private:
  class LayerContext;
  struct Root {
    at::Tensor sum;
    Per per;
  };
  // The state that the forward of one (position, micro-batch) keeps for its backward. The outputs are in StepState::values, and
  // may be freed before.
  struct Values {
    std::vector<at::Tensor> inputs;              // detached: leaves of the layer's own graph
    std::vector<torch::autograd::Edge> outputs;  // by output: where its gradient enters the graph; invalid if it needs none
    std::vector<Root> roots;
    std::shared_ptr<Context> context;                         // the layer's backward uses it, too
    bool defers = false;                                      // the backward leaves weight gradients for later
    std::vector<std::function<void()>> deferred;              // passed to Context::defer
    std::vector<std::pair<int, at::Tensor>> param_gradients;  // by parameter: computed, but not added yet
    ExchangeLayer::Backward exchange_backward;                // of an exchange layer; null if no graph is kept
    bool is_exchanged = false;                                // its forward has communicated
    bool is_joined = false;                                   // by `join`
    std::vector<at::Tensor> kept;                             // by Context::keep, for the recompute
    int readers_done = 0;  // forwards that have read the outputs (counted outside training only)
  };

  struct Run {
    std::vector<at::Tensor> outputs;
    Work work;
  };

  Values& values(int position, int micro_batch) { return values_[static_cast<size_t>(position) * micro_batches_ + micro_batch]; }
  template <class Body>
  auto with_layer_name(int position, int micro_batch, Body&& body) const;
  void begin_layer(int position, int micro_batch, bool is_recompute, Values& values);
  std::vector<at::Tensor> run_layer(int position, Values& values);
  Run run(int position, int micro_batch, bool is_recompute, Keep keep);
  Run start_exchange(int position, Keep keep, Values& values);
  void begin_sums();
  Work timed(int position, const std::function<Work()>& start);
  int find_stat(int position, const std::string& name) const;
  Stats stats_of(int position, const Stats& stats) const;
  Work backward_exchange(int position, int micro_batch, Values& values);
  Work join_forward(const Action& action, Values& values);
  void count_readers(const Program& program);
  static void keep_graph(const std::vector<at::Tensor>& outputs, Values& values);
  void release_read_values(int position, int micro_batch);
  Work backward_layer(int position, int micro_batch, Values& values);
  struct Part {
    Batch fields;
    int64_t first_sample = 0;  // its place in the global batch
  };

  // A parameter of the layer at a position.
  struct LayerParam {
    const Param* param;
    int index;  // in ModelInfo::params
  };

  const ModelInfo& model_info() const { return *state_.model; }
  int index_of(int position, const Param& param) const;

  std::shared_ptr<Model> model_;
  StepState& state_;
  std::vector<bool> runs_;
  at::Device device_ = at::kCPU;
  at::ScalarType param_type_ = at::kFloat;
  Gradients gradients_;
  std::vector<std::vector<LayerParam>> layer_params_;  // by position
  std::vector<std::vector<int>> trained_params_;       // by position: indices of the trainable ones
  std::map<Mode, std::vector<int>> readers_;           // by position: forwards after which its outputs are dropped
  std::set<const c10::StorageImpl*> shared_storages_;  // buffers of parameters that several units share
  std::vector<Values> values_;
  StepSums sums_;
  std::vector<ExchangeLayer*> exchanges_;  // by position: null for other layers
  std::map<int, int64_t> exchange_ns_;     // by position of exchanges with the statistic `seconds`
  std::map<std::string, SentBytes> sent_;  // by axis
  bool searches_nonfinite_ = false;
  std::string nonfinite_;
  std::set<int> updated_layers_;  // in this step
  std::vector<Part> parts_;       // by micro-batch
  Mode mode_ = Mode::train;
  int micro_batches_ = 1;
  bool is_by_hand_ = false;
  Seeds seeds_;
};

// Calls `body` and returns its result. Puts the layer's name, and the micro-batch if there are several, in front of its errors.
template <class Body>
auto ComputeState::with_layer_name(int position, int micro_batch, Body&& body) const {
  const auto name = [&] {
    const PositionInfo& info = model_info().positions[position];
    const std::string part = micro_batches_ > 1 ? fmt::format(" in micro-batch {}", micro_batch) : "";
    return fmt::format("layer '{}' ({}){}", info.name, info.kind, part);
  };
  return with_context(name, std::forward<Body>(body));
}

}  // namespace zt
