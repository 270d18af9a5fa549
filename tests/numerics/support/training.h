// Trains a small GPT for a few steps with one configuration, so that tests can compare configurations.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zt/process/world.h"
#include "zt/train/trainer.h"

namespace zt::test {

constexpr int64_t kSamples = 12, kSeq = 10, kVocab = 37;

using SplitStages = std::function<std::shared_ptr<Pass>(std::shared_ptr<Axis>)>;

struct Config {
  int ranks = 1;
  int micro_batches = 1;
  int eval_micro_batches = 1;
  int stage = -1;  // -1: no zero pass; needs one rank
  std::string reduce_every = {};
  int64_t bucket_bytes = -1;
  Precision precision = Precision::fp32;
  int recompute_every = 0;
  bool split_backward = false;
  double dropout = 0;
  bool tied = true;
  double clip = 0.5;
  int steps = 4;
  int seed = 0;                // seed of the batches
  int64_t samples = kSamples;  // in a global batch
  int prefetch = -1;
  int64_t persist_below = -1, max_reuse_distance = -1;
  Value::Table shard = {};                          // further options of zero.shard
  int replicas = 1;                                 // groups of ranks that hold the same shards
  int stage_ranks = 1;                              // ranks along an axis pp before dp, with `split`
  int tensor_ranks = 1;                             // ranks along an axis tp after dp, which see the same data
  int expert_ranks = 0;                             // ranks along an axis ep after dp, which see other data; 0: no such axis
  std::string frozen = {};                          // regular expression of the parameters that are frozen
  std::optional<bool> node_shared = false;          // nullopt: the default of zero.shard
  bool by_hand = false;                             // forward, backward and finish_step instead of step
  bool is_plain = false;                            // plain SGD instead of `optimizer`: updates are proportional to the gradient
  std::string optimizer = "adamw";                  // or "momentum" (SGD with momentum), "lion", "muon"
  bool gradient = false;                            // records Outcome::first_gradient at every stage
  std::optional<LossScaleOptions> loss_scale = {};  // for fp16
  SplitStages split = {};                           // returns the pass that spreads the layers over pp; empty: no pp
  std::shared_ptr<Pass> last_pass = {};             // applied after all others
  std::function<std::shared_ptr<Model>()> model = {};  // makes each rank's model; empty: the GPT
  std::function<Batch(int step)> batch = {};           // returns the global batch of a step; empty: global_batch
  std::function<StepBatch(const Batch&)> cut = {};     // returns what a step is given for a rank's part; empty: the part
};

struct Outcome {
  std::vector<double> losses, norms;
  at::Tensor weights;         // all master parameters, flat, float64, after the last step
  at::Tensor first_gradient;  // of the first step: all trainable parameters, flat, float64; undefined if not recorded
  double evaluated = 0;       // loss of one more batch, after the last step
};

// Returns the global batch of a step: tokens and labels, [samples, kSeq]. It differs for each seed. Some labels are ignored, with
// different numbers per sample.
Batch global_batch(int step, int seed = 0, int64_t samples = kSamples);
// Returns samples [begin, begin + count).
Batch part_of(const Batch& batch, int64_t begin, int64_t count);
// Returns consecutive parts of these numbers of samples.
std::vector<Batch> cut_at(const Batch& batch, const std::vector<int64_t>& counts);
// Returns the first `tokens` tokens of each sample.
Batch shortened(Batch batch, int64_t tokens);

// Returns a trainer. `optimizer` and `clip` of `options` are replaced by those of `config`.
std::shared_ptr<Trainer> make_trainer(const World& world, const Config& config, TrainerOptions options = {});

// The training run of one rank, step by step.
class RankRun {
 public:
  RankRun(const World& world, const Config& config);
  StepResult step();  // runs the next step
  Outcome finish();   // evaluates; call after the last step
  Trainer& trainer() { return *trainer_; }
  const std::shared_ptr<Trainer>& shared_trainer() const { return trainer_; }
  // Lets the next step use the batch of step `steps`. For a trainer that was loaded from a checkpoint.
  void skip_to(int steps) { steps_ = steps; }

 private:
  Batch part_of_batch() const;
  int data_ranks() const;
  StepResult step_by_hand(const Batch& mine);

  World world_;
  Config config_;
  std::shared_ptr<Trainer> trainer_;
  int steps_ = 0;  // number of steps done
  Outcome outcome_;
};

// Trains and returns the outcome of rank 0. Fails the test if another rank has other losses, norms or weights.
Outcome train(const Config& config);

// Fails the test unless losses, norms, weights and the evaluation have the same bits.
void expect_equal(const Outcome& a, const Outcome& b);

// Returns || a - b || / || b || for tensors, and the largest relative difference of two elements for lists.
double distance(const at::Tensor& a, const at::Tensor& b);
double distance(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace zt::test
