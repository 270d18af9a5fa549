// Cross-entropy over rows of logits in two passes: the loss from a row's largest element and sum of exponentials, then the
// gradient (softmax minus one-hot). Never holds the log-softmax.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "cpu/kernels.h"
#include "zt/model/layer.h"

namespace zt::nn {

// Labels, one a row of the logits, and what has been found out about the rows.
class SoftmaxLoss {
 public:
  // labels: int64, any shape. Those equal to `ignore_index` are not valid and count nothing.
  SoftmaxLoss(const at::Tensor& labels, int64_t ignore_index);

  // logits: [rows, classes], contiguous. Returns the sum over valid rows of -log softmax(row)[label] as a double scalar; the
  // sum is made in row order in double, from logits of 16 bits too; on a GPU in a fixed tree, and it stays there. Misuse for a
  // label that is neither a class nor ignore_index. Of meta logits, a meta scalar.
  at::Tensor sum(const at::Tensor& logits);
  // out = scale * d sum / d logits, each element rounded once; scale: a scalar. After sum() of the same logits. In place iff out
  // is logits.
  void gradient(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale) const;

 private:
  void check(int64_t classes) const;
  at::Tensor sum_on_gpu(const at::Tensor& logits);
  void gradient_on_gpu(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale) const;

  at::Tensor labels_;
  int64_t ignore_index_;
  std::vector<kernels::RowStats> stats_;
  at::Tensor device_stats_;  // on a GPU instead of stats_: [rows, 2] float64
};

// Layer::count of the layers that add this loss: valid labels and samples of the whole local batch. All labels on meta are valid.
Counts count_labels(const std::function<at::Tensor(const std::string&)>& batch, int64_t ignore_index);

}  // namespace zt::nn
