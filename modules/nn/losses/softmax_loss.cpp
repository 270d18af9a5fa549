#include "softmax_loss.h"

#include <cmath>
#include <limits>

#include "cuda/device_call.h"
#include "cuda/device_softmax.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_dtype(const at::Tensor& labels) {
  if (labels.scalar_type() != at::kLong)
    misuse("the batch's labels must be int64, got {}: convert them with labels:to \"int64\"", describe(labels));
}

}  // namespace

void check_labels(const at::Tensor& labels, int64_t ignore_index, int64_t classes) {
  check_dtype(labels);
  const at::Tensor on_host = labels.cpu().contiguous();
  const auto* label = on_host.const_data_ptr<int64_t>();
  const int64_t width = labels.dim() == 2 ? labels.size(1) : 0;
  for (int64_t r = 0; r < labels.numel(); ++r) {
    if (label[r] == ignore_index || (label[r] >= 0 && label[r] < classes)) continue;
    const std::string place = width > 0 ? fmt::format("sample {}, index {}", r / width, r % width) : fmt::format("row {}", r);
    misuse("label {} at {} is neither one of the {} classes nor the ignore_index {}", label[r], place, classes, ignore_index);
  }
}

SoftmaxLoss::SoftmaxLoss(const at::Tensor& labels, int64_t ignore_index, std::optional<ClassShare> share)
    : given_(labels), ignore_index_(ignore_index), share_(std::move(share)) {
  check_dtype(labels);
  labels_ = labels.contiguous().view({-1});
}

// Replaces the statistics of this rank's classes, and the logits of those labels that are among them (else 0), by those of all.
void SoftmaxLoss::join_stats(std::vector<double>& of_labels) {
  const auto rows = static_cast<int64_t>(stats_.size());
  const at::Tensor mine = at::empty({rows, 3}, at::kDouble);
  auto* to = mine.data_ptr<double>();
  for (int64_t r = 0; r < rows; ++r) {
    *to++ = stats_[r].largest;
    *to++ = stats_[r].sum;
    *to++ = of_labels[r];
  }
  const at::Tensor all = share_->exchange(mine);
  const auto* first = all.const_data_ptr<double>();
  for (int64_t r = 0; r < rows; ++r) {
    const auto number = [&](int64_t rank, int64_t i) { return first[(rank * rows + r) * 3 + i]; };
    double largest = number(0, 0), sum = 0, of_label = 0;
    for (int64_t rank = 1; rank < all.size(0); ++rank) largest = std::max(largest, number(rank, 0));
    for (int64_t rank = 0; rank < all.size(0); ++rank) {
      if (number(rank, 0) > -kInfinity) sum += number(rank, 1) * std::exp(number(rank, 0) - largest);
      of_label += number(rank, 2);
    }
    stats_[r] = {largest, sum};
    of_labels[r] = of_label;
  }
}

at::Tensor SoftmaxLoss::sum(const at::Tensor& logits) {
  const int64_t rows = logits.size(0), classes = logits.size(1);
  if (labels_.numel() != rows) misuse("{} labels do not fit logits of {} rows: give one label per row", labels_.numel(), rows);
  if (logits.is_meta()) {
    if (share_) share_->exchange(at::empty({rows, 3}, logits.options().dtype(at::kDouble).requires_grad(false)));
    return at::empty({}, logits.options().dtype(at::kDouble).requires_grad(false));
  }
  check_labels(given_, ignore_index_, share_ ? share_->total : classes);
  if (logits.is_cuda()) return share_ ? sum_of_share_on_gpu(logits) : sum_on_gpu(logits);
  const Share own = own_of(logits);
  const auto* label = labels_.const_data_ptr<int64_t>();
  stats_.assign(rows, {});
  std::vector<double> of_labels(static_cast<size_t>(rows), 0);
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
      if (label[r] != ignore_index_ && label[r] >= own.begin && label[r] < own.end())
        of_labels[r] = static_cast<double>(x[r * classes + label[r] - own.begin]);
    }
  });
  if (share_) join_stats(of_labels);
  for (int64_t r = 0; r < rows; ++r) {
    if (label[r] != ignore_index_) total += stats_[r].largest + std::log(stats_[r].sum) - of_labels[r];
  }
  return at::scalar_tensor(total, at::kDouble);
}

void SoftmaxLoss::gradient(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale) const {
  if (logits.is_meta()) return;
  if (logits.is_cuda()) return share_ ? gradient_of_share_on_gpu(out, logits, scale) : gradient_on_gpu(out, logits, scale);
  const int64_t rows = logits.size(0), classes = logits.size(1);
  const Share own_classes = own_of(logits);
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    const T* x = logits.const_data_ptr<T>();
    T* to = out.data_ptr<T>();
    const auto* label = labels_.const_data_ptr<int64_t>();
    const auto factor = scale.item<double>();
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        T* row = to + r * classes;
        const int64_t place = label[r] - own_classes.begin;
        const bool is_own = place >= 0 && place < classes;
        if (label[r] == ignore_index_) {
          std::fill_n(row, classes, T(0));
          continue;
        }
        const double own = is_own ? static_cast<double>(x[r * classes + place]) : 0;  // read before the row is overwritten
        kernels::scaled_softmax(row, x + r * classes, classes, stats_[r], factor);
        if (is_own) row[place] = static_cast<T>(factor * (std::exp(own - stats_[r].largest) / stats_[r].sum - 1));
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

// Which labels count, which of them are of this rank's classes, and where, [rows, 1]; the first or last class for others.
struct SoftmaxLoss::OwnLabels {
  at::Tensor valid, is_own, places;
};

SoftmaxLoss::OwnLabels SoftmaxLoss::own_labels() const {
  const at::Tensor valid = labels_.ne(ignore_index_), places = labels_ - share_->own.begin;
  return {valid, (places >= 0).logical_and(places < share_->own.count).logical_and(valid),
          places.clamp(0, share_->own.count - 1).unsqueeze(1)};
}

at::Tensor SoftmaxLoss::sum_of_share_on_gpu(const at::Tensor& logits) {
  labels_ = labels_.to(logits.device(), at::kLong, /*non_blocking=*/true);
  const at::Tensor wide = logits.to(wide_dtype(logits.scalar_type()));
  const auto [valid, is_own, places] = own_labels();
  const at::Tensor largest = wide.amax({1}), shift = largest.masked_fill(largest.eq(-kInfinity), 0);
  const at::Tensor sum = (wide - shift.unsqueeze(1)).exp_().sum({1}, false, at::kDouble);
  const at::Tensor of_labels = wide.gather(1, places).squeeze(1);
  const at::Tensor all = share_->exchange(
      at::stack({largest.to(at::kDouble), sum, of_labels.to(at::kDouble).masked_fill(is_own.logical_not(), 0)}, 1).contiguous());
  const at::Tensor most = all.select(2, 0).amax({0});
  const at::Tensor sums = (all.select(2, 1) * (all.select(2, 0) - most).exp()).sum(0);  // a share without finite logits adds 0
  device_stats_ = at::stack({most, sums}, 1);
  return (most + sums.log() - all.select(2, 2).sum(0)).masked_fill(valid.logical_not(), 0).sum();
}

void SoftmaxLoss::gradient_of_share_on_gpu(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale) const {
  const auto [valid, is_own, places] = own_labels();
  const auto wide = wide_dtype(logits.scalar_type());
  const at::Tensor largest = device_stats_.select(1, 0).to(wide).unsqueeze(1),
                   sums = device_stats_.select(1, 1).to(wide).unsqueeze(1);
  at::Tensor gradient = (logits.to(wide) - largest).exp_().div_(sums);
  gradient.scatter_add_(1, places, is_own.to(wide).neg().unsqueeze(1));
  gradient.mul_(scale.to(gradient.options())).masked_fill_(valid.logical_not().unsqueeze(1), 0);
  at::Tensor(out).copy_(gradient);
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
