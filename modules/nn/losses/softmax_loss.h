// Cross-entropy over rows of logits in two passes. The first computes the loss from each row's largest element and sum of
// exponentials, the second computes the gradient (softmax minus one-hot). The log-softmax is never stored.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cpu/kernels.h"
#include "zt/base/box.h"
#include "zt/model/layer.h"

namespace zt::nn {

// The classes of which this rank has logits, where several ranks share them.
struct ClassShare {
  Share own;
  int64_t total = 0;
  // Returns what all ranks give, [ranks, rows, 3], from float64 [rows, 3].
  std::function<at::Tensor(const at::Tensor&)> exchange;
};

// Labels, one per row of the logits, and the statistics of the rows.
class SoftmaxLoss {
 public:
  // labels: int64, any shape. Labels equal to `ignore_index` are not valid and add nothing. Throws Misuse for another dtype.
  // `share`: without it the logits are those of all classes.
  SoftmaxLoss(const at::Tensor& labels, int64_t ignore_index, std::optional<ClassShare> share = {});

  // Returns the sum over valid rows of -log softmax(row)[label] as a float64 scalar on the logits' device. The sum is in float64
  // for any dtype: on the CPU in row order, on a GPU in a fixed tree. logits: [rows, classes of this rank], contiguous. With a
  // share, ranks exchange the largest logit of each row, the sum of exponentials and the label's logit. Throws Misuse for a label
  // that is neither a class nor ignore_index, or if there is not one label per row.
  at::Tensor sum(const at::Tensor& logits);
  // The same for logits that exist for some rows at a time: begin, then add for the rows in order, then total, which exchanges
  // once. Checks are those of `sum`, in `begin`. `like`: of the dtype and device of the logits.
  void begin(int64_t rows, int64_t classes, const at::Tensor& like);
  void add(const at::Tensor& logits, int64_t first_row);
  at::Tensor total();

  // Writes out = scale * d sum / d logits, each element rounded once. scale: a scalar. Requires an earlier sum of the same
  // logits, which are those of the rows from `first_row` on. `out` may be `logits`, but must not overlap it otherwise.
  void gradient(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale, int64_t first_row = 0) const;

 private:
  struct OwnLabels;
  Share own_of(int64_t classes) const { return share_ ? share_->own : Share{0, classes}; }
  void join_stats();
  void add_on_gpu(const at::Tensor& logits, int64_t first_row);
  void add_share_on_gpu(const at::Tensor& logits, int64_t first_row);
  at::Tensor total_on_gpu();
  at::Tensor total_of_shares_on_gpu();
  OwnLabels own_labels(int64_t first_row, int64_t rows) const;
  void gradient_on_gpu(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale, int64_t first_row) const;
  void gradient_of_share_on_gpu(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale,
                                int64_t first_row) const;
  void add_block(const at::Tensor& logits, int64_t first_row);
  void gradient_of_block(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale, int64_t first_row) const;

  at::Tensor given_, labels_;  // as given, and one after the other
  int64_t ignore_index_;
  std::optional<ClassShare> share_;
  at::TensorOptions wide_;  // float64 on the device of the logits
  std::vector<kernels::RowStats> stats_;
  at::Tensor device_stats_;  // used instead of stats_ on a GPU: [rows, 2] float64
  // Of the rows added so far, until `total`: the labels' logits; on a GPU the losses [rows], or what is exchanged [rows, 3].
  std::vector<double> of_labels_;
  at::Tensor device_parts_;
};

// Throws Misuse for labels that are not int64, and for one that is neither a class nor ignore_index. `classes` INT64_MAX: their
// number is not known.
void check_labels(const at::Tensor& labels, int64_t ignore_index, int64_t classes);

// Layer::count of the layers that add this loss: returns the valid labels of the whole local batch. On meta all labels count as
// valid. Throws Misuse if the batch has no labels.
Counts count_labels(const BatchField& batch, int64_t ignore_index);

}  // namespace zt::nn
