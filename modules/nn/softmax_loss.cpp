#include "softmax_loss.h"

#include <cmath>

#include "rows.h"

namespace zt::nn {

SoftmaxLoss::SoftmaxLoss(const at::Tensor& labels, int64_t ignore_index) : ignore_index_(ignore_index) {
  if (labels.scalar_type() != at::kLong) misuse("the batch's labels must be int64, got {}", describe(labels));
  labels_ = labels.contiguous().view({-1});
}

at::Tensor SoftmaxLoss::sum(const at::Tensor& logits) {
  const int64_t rows = logits.size(0), classes = logits.size(1);
  if (labels_.numel() != rows) misuse("{} labels do not fit logits of {} rows: one label a row", labels_.numel(), rows);
  const auto* label = labels_.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < rows; ++r) {
    if (label[r] != ignore_index_ && (label[r] < 0 || label[r] >= classes)) {
      misuse("label {} in row {} is neither one of the {} classes nor the ignore_index {}", label[r], r, classes, ignore_index_);
    }
  }
  stats_.assign(rows, {});
  double total = 0;
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    const T* x = logits.const_data_ptr<T>();
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        if (label[r] != ignore_index_) stats_[r] = kernels::row_stats(x + r * classes, classes);
      }
    });
    for (int64_t r = 0; r < rows; ++r) {
      if (label[r] == ignore_index_) continue;
      total += stats_[r].largest + std::log(stats_[r].sum) - static_cast<double>(x[r * classes + label[r]]);
    }
  });
  return at::scalar_tensor(total, at::kDouble);
}

void SoftmaxLoss::gradient(const at::Tensor& out, const at::Tensor& logits, double scale) const {
  const int64_t rows = logits.size(0), classes = logits.size(1);
  const auto* label = labels_.const_data_ptr<int64_t>();
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    const T* x = logits.const_data_ptr<T>();
    T* to = out.data_ptr<T>();
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        T* row = to + r * classes;
        if (label[r] == ignore_index_) {
          std::fill_n(row, classes, T(0));
        } else {
          kernels::scaled_softmax(row, x + r * classes, classes, stats_[r], scale);
          row[label[r]] -= static_cast<T>(scale);
        }
      }
    });
  });
}

Counts count_labels(const std::function<at::Tensor(const std::string&)>& batch, int64_t ignore_index) {
  const at::Tensor labels = batch("labels");
  if (!labels.defined()) misuse("the loss needs the batch's labels to count valid tokens, but the batch has none");
  return {labels.ne(ignore_index).sum().item<int64_t>(), labels.dim() > 0 ? labels.size(0) : 1};
}

}  // namespace zt::nn
