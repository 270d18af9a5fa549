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
    const std::string which = classes == INT64_MAX ? "classes" : fmt::format("{} classes", classes);
    misuse("label {} at {} is neither one of the {} nor the ignore_index {}", label[r], place, which, ignore_index);
  }
}

SoftmaxLoss::SoftmaxLoss(const at::Tensor& labels, int64_t ignore_index, std::optional<ClassShare> share)
    : given_(labels), ignore_index_(ignore_index), share_(std::move(share)) {
  check_dtype(labels);
  labels_ = labels.contiguous().view({-1});
}

// Replaces the statistics of this rank's classes, and the logits of those labels that are among them (else 0), by those of all.
void SoftmaxLoss::join_stats() {
  const auto rows = static_cast<int64_t>(stats_.size());
  const at::Tensor mine = at::empty({rows, 3}, wide_);
  auto* to = mine.data_ptr<double>();
  for (int64_t r = 0; r < rows; ++r) {
    *to++ = stats_[r].largest;
    *to++ = stats_[r].sum;
    *to++ = of_labels_[r];
  }
  const at::Tensor all = share_->exchange(mine);
  const auto* first = all.const_data_ptr<double>();
  for (int64_t r = 0; r < rows; ++r) {
    const auto number = [&](int64_t rank, int64_t i) { return first[(rank * rows + r) * 3 + i]; };
    double largest = number(0, 0), sum = 0, of_label = 0;
    for (int64_t rank = 1; rank < all.size(0); ++rank) largest = std::max(largest, number(rank, 0));
    for (int64_t rank = 0; rank < all.size(0); ++rank) {
      if (number(rank, 0) != -kInfinity) sum += number(rank, 1) * std::exp(number(rank, 0) - largest);
      of_label += number(rank, 2);
    }
    stats_[r] = {largest, sum};
    of_labels_[r] = of_label;
  }
}

at::Tensor SoftmaxLoss::sum(const at::Tensor& logits) {
  begin(logits.size(0), logits.size(1), logits);
  add(logits, 0);
  return total();
}

void SoftmaxLoss::begin(int64_t rows, int64_t classes, const at::Tensor& like) {
  if (labels_.numel() != rows) misuse("{} labels do not fit logits of {} rows: give one label per row", labels_.numel(), rows);
  wide_ = like.options().dtype(at::kDouble).requires_grad(false);
  if (like.is_meta()) return;
  check_labels(given_, ignore_index_, share_ ? share_->total : classes);
  if (like.is_cuda()) {
    labels_ = labels_.to(like.device(), at::kLong, /*non_blocking=*/true);
    device_parts_ = share_ ? at::empty({rows, 3}, wide_) : at::empty({rows}, wide_);
    if (!share_) device_stats_ = at::empty({rows, 2}, wide_);
    return;
  }
  stats_.assign(static_cast<size_t>(rows), {});
  of_labels_.assign(static_cast<size_t>(rows), 0);
}

void SoftmaxLoss::add(const at::Tensor& logits, int64_t first_row) {
  if (logits.is_meta()) return;
  if (logits.is_cuda()) return share_ ? add_share_on_gpu(logits, first_row) : add_on_gpu(logits, first_row);
  const int64_t rows = logits.size(0), classes = logits.size(1);
  const Share own = own_of(classes);
  const auto* label = labels_.const_data_ptr<int64_t>() + first_row;
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    const T* x = logits.const_data_ptr<T>();
    kernels::RowStats* stats = stats_.data() + first_row;
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        if (label[r] != ignore_index_) stats[r] = kernels::row_stats(x + r * classes, classes);
      }
    });
    for (int64_t r = 0; r < rows; ++r) {
      if (label[r] != ignore_index_ && label[r] >= own.begin && label[r] < own.end())
        of_labels_[first_row + r] = static_cast<double>(x[r * classes + label[r] - own.begin]);
    }
  });
}

at::Tensor SoftmaxLoss::total() {
  if (wide_.device().is_meta()) {
    if (share_) share_->exchange(at::empty({labels_.numel(), 3}, wide_));
    return at::empty({}, wide_);
  }
  if (wide_.device().is_cuda()) return share_ ? total_of_shares_on_gpu() : total_on_gpu();
  if (share_) join_stats();
  const auto* label = labels_.const_data_ptr<int64_t>();
  const std::vector<double> of_labels = std::exchange(of_labels_, {});
  double total = 0;
  for (size_t r = 0; r < stats_.size(); ++r) {
    if (label[r] != ignore_index_) total += stats_[r].largest + std::log(stats_[r].sum) - of_labels[r];
  }
  return at::scalar_tensor(total, at::kDouble);
}

void SoftmaxLoss::gradient(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale, int64_t first_row) const {
  if (logits.is_meta()) return;
  if (logits.is_cuda())
    return share_ ? gradient_of_share_on_gpu(out, logits, scale, first_row) : gradient_on_gpu(out, logits, scale, first_row);
  const int64_t rows = logits.size(0), classes = logits.size(1);
  const Share own_classes = own_of(classes);
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    const T* x = logits.const_data_ptr<T>();
    T* to = out.data_ptr<T>();
    const auto* label = labels_.const_data_ptr<int64_t>() + first_row;
    const kernels::RowStats* stats = stats_.data() + first_row;
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
        kernels::scaled_softmax(row, x + r * classes, classes, stats[r], factor);
        if (is_own) row[place] = static_cast<T>(factor * (std::exp(own - stats[r].largest) / stats[r].sum - 1));
      }
    });
  });
}

void SoftmaxLoss::add_on_gpu(const at::Tensor& logits, int64_t first_row) {
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    const device::Labels labels{labels_.const_data_ptr<int64_t>() + first_row, ignore_index_};
    auto* stats = static_cast<kernels::RowStats*>(device_stats_.data_ptr()) + first_row;
    const T* x = logits.const_data_ptr<T>();
    auto* losses = device_parts_.data_ptr<double>() + first_row;
    on_gpu(logits, device::SoftmaxLosses<T>{losses, stats, x, labels, logits.size(0), logits.size(1)});
  });
}

at::Tensor SoftmaxLoss::total_on_gpu() {
  const at::Tensor losses = std::exchange(device_parts_, {}), total = at::empty({}, wide_);
  on_gpu(losses, device::SumAll{total.data_ptr<double>(), losses.const_data_ptr<double>(), 1, losses.numel()});
  return total;
}

// Which labels count, which of them are of this rank's classes, and where, [rows, 1]; the first or last class for others.
struct SoftmaxLoss::OwnLabels {
  at::Tensor valid, is_own, places;
};

SoftmaxLoss::OwnLabels SoftmaxLoss::own_labels(int64_t first_row, int64_t rows) const {
  const at::Tensor labels = labels_.narrow(0, first_row, rows);
  const at::Tensor valid = labels.ne(ignore_index_), places = labels - share_->own.begin;
  return {valid, (places >= 0).logical_and(places < share_->own.count).logical_and(valid),
          places.clamp(0, share_->own.count - 1).unsqueeze(1)};
}

// Calls body(first row, rows) for blocks of rows: what is computed for them in the wide dtype takes little memory then.
template <class Body>
static void in_blocks(int64_t rows, const Body& body) {
  constexpr int64_t kRows = 1024;
  for (int64_t first = 0; first < rows; first += kRows) body(first, std::min(kRows, rows - first));
}

void SoftmaxLoss::add_share_on_gpu(const at::Tensor& logits, int64_t first_row) {
  in_blocks(logits.size(0), [&](int64_t first, int64_t rows) { add_block(logits.narrow(0, first, rows), first_row + first); });
}

void SoftmaxLoss::add_block(const at::Tensor& logits, int64_t first_row) {
  const at::Tensor wide = logits.to(wide_dtype(logits.scalar_type()));
  const auto [valid, is_own, places] = own_labels(first_row, logits.size(0));
  const at::Tensor largest = wide.amax({1}), shift = largest.masked_fill(largest.eq(-kInfinity), 0);
  const at::Tensor sum = (wide - shift.unsqueeze(1)).exp_().sum({1}, false, at::kDouble);
  const at::Tensor of_labels = wide.gather(1, places).squeeze(1);
  const at::Tensor parts =
      at::stack({largest.to(at::kDouble), sum, of_labels.to(at::kDouble).masked_fill(is_own.logical_not(), 0)}, 1);
  device_parts_.narrow(0, first_row, logits.size(0)).copy_(parts);
}

at::Tensor SoftmaxLoss::total_of_shares_on_gpu() {
  const at::Tensor all = share_->exchange(std::exchange(device_parts_, {}));
  const at::Tensor most = all.select(2, 0).amax({0});
  const at::Tensor sums = (all.select(2, 1) * (all.select(2, 0) - most).exp()).sum(0);  // a share without finite logits adds 0
  device_stats_ = at::stack({most, sums}, 1);
  return (most + sums.log() - all.select(2, 2).sum(0)).masked_fill(labels_.eq(ignore_index_), 0).sum();
}

void SoftmaxLoss::gradient_of_share_on_gpu(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale,
                                           int64_t first_row) const {
  in_blocks(logits.size(0), [&](int64_t first, int64_t rows) {
    gradient_of_block(out.narrow(0, first, rows), logits.narrow(0, first, rows), scale, first_row + first);
  });
}

void SoftmaxLoss::gradient_of_block(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale,
                                    int64_t first_row) const {
  const auto [valid, is_own, places] = own_labels(first_row, logits.size(0));
  const auto wide = wide_dtype(logits.scalar_type());
  const at::Tensor stats = device_stats_.narrow(0, first_row, logits.size(0)), of_dtype = stats.to(wide);
  // The element of the label in float64: in float32 the difference from 1 of a probability near 1 would be lost.
  const at::Tensor of_labels =
      (logits.gather(1, places).to(at::kDouble) - stats.narrow(1, 0, 1)).exp_().div_(stats.narrow(1, 1, 1));
  at::Tensor gradient = (logits.to(wide) - of_dtype.narrow(1, 0, 1)).exp_().div_(of_dtype.narrow(1, 1, 1));
  gradient.scatter_(1, places, (of_labels - is_own.unsqueeze(1).to(at::kDouble)).to(wide));
  gradient.mul_(scale.to(gradient.options())).masked_fill_(valid.logical_not().unsqueeze(1), 0);
  at::Tensor(out).copy_(gradient);
}

void SoftmaxLoss::gradient_on_gpu(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& scale,
                                  int64_t first_row) const {
  const at::Tensor factor = scale.to(logits.device(), at::kDouble);
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    const device::Labels labels{labels_.const_data_ptr<int64_t>() + first_row, ignore_index_};
    const auto* stats = static_cast<const kernels::RowStats*>(device_stats_.const_data_ptr()) + first_row;
    on_gpu(logits, device::SoftmaxGradient<T>{out.data_ptr<T>(), logits.const_data_ptr<T>(), stats,
                                              factor.const_data_ptr<double>(), labels, logits.size(0), logits.size(1)});
  });
}

Counts count_labels(const BatchField& batch, int64_t ignore_index) {
  const at::Tensor labels = batch("labels");
  if (!labels.defined()) misuse("the loss needs the batch's labels to count valid tokens, but the batch has none");
  const int64_t valid = labels.is_meta() ? labels.numel() : labels.ne(ignore_index).sum().item<int64_t>();
  return {valid, 0};
}

}  // namespace zt::nn
