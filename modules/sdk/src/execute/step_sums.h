// The sums of a step other than gradients: the terms of the objective, and the statistics of layers.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "zt/model/model.h"

namespace zt {

struct LossSum {
  LossInfo term;
  double sum = 0;
};

// Keeps one sum per micro-batch and adds them in ascending order when it is asked, because schedules may change the order of
// forwards, but not that of a sum.
// Threads: the rank's thread only.
class StepSums {
 public:
  void clear();
  void discard(int micro_batch);
  // `value`: a float64 scalar.
  void add_loss(const std::string& term, int micro_batch, const at::Tensor& value);
  // `stat`: index in ModelInfo::stats. `values`: [size] of any dtype.
  void add_stat(int stat, int micro_batch, const at::Tensor& values);

  // Returns this rank's sums so far of the model's loss terms, by name. Terms to which no layer added are 0.
  std::vector<LossSum> losses(const ModelInfo& model) const;
  // Returns this rank's sums so far of all statistics of the model, one after the other: float64 [total size] in host memory.
  at::Tensor stats(const ModelInfo& model) const;

 private:
  using Parts = std::map<int, at::Tensor>;  // by micro-batch
  static void add(Parts& parts, int micro_batch, const at::Tensor& value);
  static at::Tensor total(const Parts& parts);

  std::map<std::string, Parts> losses_;
  std::map<int, Parts> stats_;
};

}  // namespace zt
