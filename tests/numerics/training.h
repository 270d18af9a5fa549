// A few steps of a small GPT under one configuration, for comparing configurations.
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

struct Config {
  int ranks = 1;
  int micro_batches = 1;
  int stage = -1;  // -1: no zero pass, one rank
  std::string reduce_every = {};
  int64_t bucket_bytes = -1;
  Precision precision = Precision::fp32;
  int recompute_every = 0;
  double dropout = 0;
  bool tied = true;
  double clip = 0.5;
  int steps = 4;
  int seed = 0;  // of the batches
  int prefetch = -1;
  int64_t persist_below = -1, max_reuse_distance = -1;
  Value::Table shard = {};                             // further options of zero.shard
  int replicas = 1;                                    // groups of ranks that hold the same shards
  std::string frozen = {};                             // names of parameters that are not trained
  std::optional<bool> node_shared = false;             // nullopt: as zero.shard has it where nothing is said
  bool by_hand = false;                                // forward, backward and finish_step instead of step
  bool is_plain = false;                               // SGD, whose updates are as long as the gradient, instead of `optimizer`
  std::string optimizer = "adamw";                     // or "momentum" (SGD with it), "lion"
  bool gradient = false;                               // asks for first_gradient at every stage
  std::optional<LossScaleOptions> loss_scale = {};     // of fp16
  std::function<std::shared_ptr<Model>()> model = {};  // made once a rank; empty: the GPT
  std::function<Batch(int step)> batch = {};           // the global batch of a step; empty: global_batch
};

struct Outcome {
  std::vector<double> losses, norms;
  at::Tensor weights;         // all parameters, flat, float64, after the last step
  at::Tensor first_gradient;  // of the first step's objective, all parameters, flat, float64; undefined where it was not asked
  double evaluated = 0;       // the loss of one more batch, after the last step
};

constexpr int64_t kSamples = 12, kSeq = 10, kVocab = 37;

// The global batch of a step, other ones for each seed: tokens and labels [kSamples, kSeq]; some labels are ignored, unevenly
// over the samples.
Batch global_batch(int step, int seed = 0);
// Samples [begin, begin + count).
Batch part_of(const Batch& batch, int64_t begin, int64_t count);

// `options`: of the trainer, but for optimizer and clip.
std::shared_ptr<Trainer> make_trainer(const World& world, const Config& config, TrainerOptions options = {});

// A rank's run, step by step.
class RankRun {
 public:
  RankRun(const World& world, const Config& config);
  StepResult step();  // the next one
  Outcome finish();   // after the last one
  Trainer& trainer() { return *trainer_; }
  const std::shared_ptr<Trainer>& shared_trainer() const { return trainer_; }
  // The next step gets the batch behind those of so many steps: its trainer was loaded.
  void skip_to(int steps) { steps_ = steps; }

 private:
  Batch part_of_batch() const;
  StepResult step_by_hand(const Batch& mine);

  World world_;
  Config config_;
  std::shared_ptr<Trainer> trainer_;
  int steps_ = 0;  // done
  Outcome outcome_;
};

// Trains and gives what rank 0 saw; fails the test when another rank saw other losses or holds other weights.
Outcome train(const Config& config);

// Fails the test unless losses, norms, weights and the evaluation have the same bits.
void expect_equal(const Outcome& a, const Outcome& b);

// || a - b || / || b ||, and the largest relative difference of two elements.
double distance(const at::Tensor& a, const at::Tensor& b);
double distance(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace zt::test
