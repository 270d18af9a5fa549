// The sums of a step other than gradients: the terms of the objective, and the statistics of layers.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "zt/model/model.h"

namespace zt {

struct LossSum {
  LossInfo term;
  double sum = 0;
};

// Keeps one sum per micro-batch and position, and adds them in ascending order when it is asked: first over micro-batches, then
// over positions. So neither a schedule nor a pipeline changes the order of a sum.
// Threads: the rank's thread only.
class StepSums {
 public:
  explicit StepSums(const ModelInfo& model);
  void clear();
  void discard(int micro_batch);
  // `value`: a float64 scalar.
  void add_loss(int position, int micro_batch, const std::string& term, const at::Tensor& value);
  // `stat`: index in ModelInfo::stats. `values`: [size] of any dtype.
  void add_stat(int stat, int position, int micro_batch, const at::Tensor& values);

  // Returns this rank's sums so far of the model's loss terms, by name. Terms to which no layer added are 0.
  std::vector<LossSum> losses() const { return add_positions(losses_by_position()); }
  // Returns the same before positions are added up: float64, one number per position and term that its layer declares.
  at::Tensor losses_by_position() const;
  // Adds up such numbers.
  std::vector<LossSum> add_positions(const at::Tensor& by_position) const;
  // Returns this rank's sums so far of all statistics of the model, one after the other, each once per position of its layer:
  // float64 in host memory.
  at::Tensor stats_by_position() const;
  // Adds up such numbers: the sums by name.
  std::map<std::string, at::Tensor> add_stats(const at::Tensor& by_position) const;

 private:
  using Parts = std::map<int, at::Tensor>;  // by micro-batch
  static void add(Parts& parts, int micro_batch, const at::Tensor& value);
  static at::Tensor total(const Parts& parts);

  const ModelInfo& model_;
  std::map<std::pair<int, std::string>, Parts> losses_;  // by position and term
  std::map<std::pair<int, int>, Parts> stats_;           // by statistic and position
  std::vector<std::pair<int, int>> places_;              // statistics, each once per position of its layer
};

}  // namespace zt
