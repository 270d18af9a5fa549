// A few steps of a small GPT under one configuration, for comparing configurations.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "zt/trainer.h"
#include "zt/world.h"

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
  Value::Table shard = {};  // further options of zero.shard
  int replicas = 1;         // groups of ranks that hold the same shards
  std::string frozen = {};  // names of parameters that are not trained
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

// `options`: of the trainer, but for optimizer and clip.
std::shared_ptr<Trainer> make_trainer(const World& world, const Config& config, TrainerOptions options = {});

// Trains and gives what rank 0 saw; fails the test when another rank saw other losses or holds other weights.
Outcome train(const Config& config);

// Fails the test unless losses, norms, weights and the evaluation have the same bits.
void expect_equal(const Outcome& a, const Outcome& b);

}  // namespace zt::test
