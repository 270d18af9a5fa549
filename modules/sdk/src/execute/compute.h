// What F, R and B share within a step: the batch, the values between positions, the loss terms, the gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "gradients.h"
#include "zt/execute/executor.h"
#include "zt/model/model.h"

namespace zt {

// What a forward leaves behind for its backward.
enum class Keep : uint8_t { graph, inputs, none };
Keep parse_keep(const std::string& name);

// Factors that the backward of a loss term starts with.
struct Seeds {
  double token = 1;
  double sample = 1;
  double of(Per per) const { return per == Per::token ? token : sample; }
};

struct LossSum {
  std::string name;
  Per per = Per::token;
  double sum = 0;
};

class ComputeState {
 public:
  ComputeState(std::shared_ptr<Model> model, StepState& state);

  // A step over `batch` (this rank's part) in `micro_batches` equal parts. `first_sample`: the part's place in the global batch.
  void begin(const Batch& batch, Mode mode, int micro_batches, int64_t first_sample);
  // By hand: another batch, which is micro-batch `micro_batch` as a whole.
  void begin_micro_batch(const Batch& batch, int micro_batch, int64_t first_sample);

  void forward(int position, int micro_batch, Keep keep);
  void recompute(int position, int micro_batch);
  void backward(int position, int micro_batch);

  // Valid tokens and samples of this rank's batch. Misuse if two loss layers count differently.
  Counts count() const;
  // This rank's sums of the loss terms so far, sorted by name.
  std::vector<LossSum> losses() const;
  // Named outputs of the last position.
  std::map<std::string, at::Tensor> outputs(int micro_batch) const;
  void set_seeds(Seeds seeds) { seeds_ = seeds; }
  Seeds seeds() const { return seeds_; }
  Gradients& gradients() { return gradients_; }
  Mode mode() const { return mode_; }
  int micro_batches() const { return micro_batches_; }

 private:
  class LayerContext;
  struct Root {
    at::Tensor sum;
    Per per;
  };
  // One (position, micro-batch).
  struct Slot {
    std::vector<at::Tensor> inputs;  // detached: leaves of the layer's own graph
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> grads;  // of outputs, summed over consumers, latest first
    std::vector<Root> roots;
    std::shared_ptr<Context> context;  // the layer's backward still asks it
    int readers_left = 0;              // forwards that will still read the outputs (outside training)
  };
  struct Sum {
    Per per;
    at::Tensor sum;  // float64 scalar
  };

  Slot& slot(int position, int micro_batch) { return slots_[static_cast<size_t>(position) * micro_batches_ + micro_batch]; }
  std::vector<at::Tensor> run_layer(int position, int micro_batch, bool is_recompute, Slot& slot);
  void release_read_values(int position, int micro_batch);
  at::Tensor batch_field(const std::string& name, int micro_batch) const;

  std::shared_ptr<Model> model_;
  StepState& state_;
  Gradients gradients_;
  std::unordered_map<const Param*, int> param_index_;
  std::vector<std::vector<int>> position_params_;      // by position: indices of trainable parameters
  std::vector<int> readers_;                           // by position: edges that read its outputs
  std::set<const c10::StorageImpl*> shared_storages_;  // of parameters of several units
  std::vector<Slot> slots_;
  std::map<std::string, Sum> sums_;
  Batch batch_;
  Mode mode_ = Mode::train;
  int micro_batches_ = 1;
  int whole_batch_of_ = -1;  // by hand: the micro-batch that the batch is; -1: it is cut
  int64_t first_sample_ = 0;
  Seeds seeds_;
};

}  // namespace zt
