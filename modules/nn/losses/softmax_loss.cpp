#include "softmax_loss.h"

#include <cmath>

#include "cuda/device_call.h"
#include "cuda/device_softmax.h"
#include "zt/base/rows.h"

namespace zt::nn {

SoftmaxLoss::SoftmaxLoss(const at::Tensor& labels, int64_t ignore_index) : ignore_index_(ignore_index) {
  if (labels.scalar_type() != at::kLong)
    misuse("the batch's labels must be int64, got {}: convert them with labels:to \"int64\"", describe(labels));
  labels_ = labels.contiguous().view({-1});
  width_ = labels.dim() == 2 ? labels.size(1) : 0;
}

std::string SoftmaxLoss::place(int64_t row) const {
  return width_ > 0 ? fmt::format("sample {}, index {}", row / width_, row % width_) : fmt::format("row {}", row);
}

void SoftmaxLoss::check(int64_t classes) const {
  const at::Tensor on_host = labels_.cpu();
  const auto* label = on_host.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < labels_.numel(); ++r) {
    if (label[r] != ignore_index_ && (label[r] < 0 || label[r] >= classes)) {
      misuse("label {} at {} is neither one of the {} classes nor the ignore_index {}", label[r], place(r), classes,
             ignore_index_);
    }
  }
}

at::Tensor SoftmaxLoss::sum(const at::Tensor& logits) {
  const int64_t rows = logits.size(0), classes = logits.size(1);
  if (labels_.numel() != rows) misuse("{} labels do not fit logits of {} rows: give one label per row", labels_.numel(), rows);
  if (logits.is_meta()) return at::empty({}, logits.options().dtype(at::kDouble).requires_grad(false));
  check(classes);
  if (logits.is_cuda()) return sum_on_gpu(logits);
  const auto* label = labels_.const_data_ptr<int64_t>();
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

void SoftmaxLoss::gradient(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale) const {
  if (logits.is_meta()) return;
  if (logits.is_cuda()) return gradient_on_gpu(out, logits, scale);
  const int64_t rows = logits.size(0), classes = logits.size(1);
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    const T* x = logits.const_data_ptr<T>();
    T* to = out.data_ptr<T>();
    const auto* label = labels_.const_data_ptr<int64_t>();
    const auto factor = scale.item<double>();
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        T* row = to + r * classes;
        if (label[r] == ignore_index_) {
          std::fill_n(row, classes, T(0));
        } else {
          const double own = static_cast<double>(x[r * classes + label[r]]);  // read before the row is overwritten
          kernels::scaled_softmax(row, x + r * classes, classes, stats_[r], factor);
          row[label[r]] = static_cast<T>(factor * (std::exp(own - stats_[r].largest) / stats_[r].sum - 1));
        }
      }
    });
  });
}

at::Tensor SoftmaxLoss::sum_on_gpu(const at::Tensor& logits) {
  const int64_t rows = logits.size(0);
  const auto options = logits.options().dtype(at::kDouble).requires_grad(false);
  const at::Tensor losses = at::empty({rows}, options), total = at::empty({}, options);
  labels_ = labels_.to(logits.device(), at::kLong, /*non_blocking=*/true);
  device_stats_ = at::empty({rows, 2}, options);
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    const device::Labels labels{labels_.const_data_ptr<int64_t>(), ignore_index_};
    auto* stats = static_cast<kernels::RowStats*>(device_stats_.data_ptr());
    const T* x = logits.const_data_ptr<T>();
    on_gpu(logits, device::SoftmaxLosses<T>{losses.data_ptr<double>(), stats, x, labels, rows, logits.size(1)});
  });
  on_gpu(logits, device::SumAll{total.data_ptr<double>(), losses.const_data_ptr<double>(), 1, rows});
  return total;
}

void SoftmaxLoss::gradient_on_gpu(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale) const {
  const at::Tensor factor = scale.to(logits.device(), at::kDouble);
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    const device::Labels labels{labels_.const_data_ptr<int64_t>(), ignore_index_};
    const auto* stats = static_cast<const kernels::RowStats*>(device_stats_.const_data_ptr());
    on_gpu(logits, device::SoftmaxGradient<T>{out.data_ptr<T>(), logits.const_data_ptr<T>(), stats,
                                              factor.const_data_ptr<double>(), labels, logits.size(0), logits.size(1)});
  });
}

Counts count_labels(const std::function<at::Tensor(const std::string&)>& batch, int64_t ignore_index) {
  const at::Tensor labels = batch("labels");
  if (!labels.defined()) misuse("the loss needs the batch's labels to count valid tokens, but the batch has none");
  const int64_t valid = labels.is_meta() ? labels.numel() : labels.ne(ignore_index).sum().item<int64_t>();
  return {valid, labels.dim() > 0 ? labels.size(0) : 1};
}

}  // namespace zt::nn
