#include "label_logprobs.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "cpu/kernels.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"

namespace zt::nn {

namespace {

constexpr double kNoLogit = -std::numeric_limits<double>::infinity();

// Writes the numbers of a row but that of the label.
template <class T>
void sum_row(double* to, const T* x, int64_t classes, double temperature) {
  double largest = kNoLogit, sum = 0, weighted = 0;
  for (int64_t i = 0; i < classes; ++i) largest = std::max(largest, static_cast<double>(x[i]));
  for (int64_t i = 0; i < classes && largest != kNoLogit; ++i) {
    const double z = (static_cast<double>(x[i]) - largest) / temperature, weight = std::exp(z);
    sum += weight;
    if (weight > 0) weighted += weight * z;
  }
  to[0] = largest;
  to[1] = sum;
  to[2] = weighted;
}

// Returns log(exp(z) / sum): of a weight too small for float64, as a difference.
double logprob_of(double z, double sum) {
  const double weight = std::exp(z);
  return weight > 0 ? std::log(weight / sum) : z - std::log(sum);
}

}  // namespace

LabelLogprobs::LabelLogprobs(const at::Tensor& labels, int64_t ignore_index, double temperature, bool has_entropy,
                             std::optional<ClassShare> share)
    : given_(labels),
      labels_(labels.contiguous().view({-1})),
      ignore_index_(ignore_index),
      temperature_(temperature),
      has_entropy_(has_entropy),
      share_(std::move(share)) {}

void LabelLogprobs::begin(int64_t rows, int64_t classes, const at::Tensor& like) {
  if (labels_.numel() != rows) misuse("{} labels do not fit logits of {} rows: give one label per row", labels_.numel(), rows);
  dtype_ = wide_dtype(like.scalar_type());
  numbers_ = at::empty({rows, numbers}, like.options().dtype(at::kDouble).requires_grad(false));
  if (like.is_meta()) return;
  check_labels(given_, ignore_index_, share_ ? share_->total : classes);
  labels_ = labels_.to(like.device());
}

void LabelLogprobs::add(const at::Tensor& logits, int64_t first_row) {
  if (logits.is_meta()) return;
  if (logits.is_cuda()) return add_on_gpu(logits, first_row);
  const int64_t rows = logits.size(0), classes = logits.size(1);
  const Share own = own_of(classes);
  const auto* label = labels_.const_data_ptr<int64_t>() + first_row;
  double* to = numbers_.data_ptr<double>() + first_row * numbers;
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    const T* x = logits.const_data_ptr<T>();
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        double* row = to + r * numbers;
        std::fill_n(row, static_cast<size_t>(numbers), 0.0);
        if (label[r] == ignore_index_) continue;
        sum_row(row, x + r * classes, classes, temperature_);
        const int64_t place = label[r] - own.begin;
        if (place >= 0 && place < classes) row[of_label] = static_cast<double>(x[r * classes + place]);
      }
    });
  });
}

// Replaces the numbers of this rank's classes by those of all.
void LabelLogprobs::join_shares() {
  const at::Tensor all = share_->exchange(numbers_);  // [ranks, rows, numbers]
  if (all.is_meta()) return;
  const at::Tensor most = all.select(2, largest).amax({0}),
                   shift = ((all.select(2, largest) - most) / temperature_).clamp_min(-1e300);
  const at::Tensor factor = shift.exp(), sums = all.select(2, sum) * factor;
  numbers_ =
      at::stack({most, sums.sum(0), (all.select(2, weighted) * factor + sums * shift).sum(0), all.select(2, of_label).sum(0)}, 1);
}

std::vector<at::Tensor> LabelLogprobs::total() {
  if (share_) join_shares();
  const int64_t rows = numbers_.size(0);
  const auto options = numbers_.options().dtype(dtype_);
  if (numbers_.is_meta() || numbers_.is_cuda()) {
    const auto of = [this](Number number) { return numbers_.select(1, number); };
    const at::Tensor is_ignored = numbers_.is_meta() ? at::zeros({rows}, options.dtype(at::kBool)) : labels_.eq(ignore_index_);
    const at::Tensor log_sum = of(sum).log();
    std::vector<at::Tensor> results{
        ((of(of_label) - of(largest)) / temperature_ - log_sum).masked_fill(is_ignored, 0).to(dtype_)};
    if (has_entropy_) results.push_back((log_sum - of(weighted) / of(sum)).masked_fill(is_ignored, 0).to(dtype_));
    return results;
  }
  std::vector<at::Tensor> results{at::empty({rows}, options)};
  if (has_entropy_) results.push_back(at::empty({rows}, options));
  const auto* label = labels_.const_data_ptr<int64_t>();
  const double* row = numbers_.const_data_ptr<double>();
  for_dtype(results[0], [&](auto zero) {
    using T = decltype(zero);
    T *logprobs = results[0].data_ptr<T>(), *entropies = has_entropy_ ? results[1].data_ptr<T>() : nullptr;
    for (int64_t r = 0; r < rows; ++r, row += numbers) {
      const bool counts = label[r] != ignore_index_;
      logprobs[r] = counts ? static_cast<T>(logprob_of((row[of_label] - row[largest]) / temperature_, row[sum])) : T(0);
      if (entropies) entropies[r] = counts ? static_cast<T>(std::log(row[sum]) - row[weighted] / row[sum]) : T(0);
    }
  });
  return results;
}

void LabelLogprobs::gradient(const at::Tensor& logits, const std::vector<at::Tensor>& of_results, int64_t first_row) const {
  if (logits.is_meta()) return;
  const at::Tensor& of_logprob = of_results[0];
  const at::Tensor of_entropy = has_entropy_ ? of_results[1] : at::Tensor();
  if (logits.is_cuda()) return gradient_on_gpu(logits, of_logprob, of_entropy, first_row);
  const int64_t rows = logits.size(0), classes = logits.size(1);
  const Share own = own_of(classes);
  const auto* label = labels_.const_data_ptr<int64_t>() + first_row;
  const double* numbers_of = numbers_.const_data_ptr<double>() + first_row * numbers;
  const auto in_double = [](const at::Tensor& x) { return x.defined() ? x.to(at::kDouble).contiguous() : x; };
  const at::Tensor g = in_double(of_logprob), e = in_double(of_entropy);
  const double *of_logprobs = data_or_null<double>(g), *of_entropies = data_or_null<double>(e);
  for_dtype(logits, [&](auto zero) {
    using T = decltype(zero);
    T* x = logits.data_ptr<T>();
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        T* row = x + r * classes;
        if (label[r] == ignore_index_) {
          std::fill_n(row, classes, T(0));
          continue;
        }
        const double* of_row = numbers_of + r * numbers;
        const double log_sum = std::log(of_row[sum]), entropy = log_sum - of_row[weighted] / of_row[sum];
        const double by_logprob = of_logprobs ? of_logprobs[first_row + r] / temperature_ : 0;
        const double by_entropy = of_entropies ? of_entropies[first_row + r] / temperature_ : 0;
        const int64_t place = label[r] - own.begin;
        const bool is_own = place >= 0 && place < classes;
        const double z = is_own ? (static_cast<double>(row[place]) - of_row[largest]) / temperature_ - log_sum : 0;  // log p
        kernels::logprob_gradient(
            row, classes,
            {of_row[largest] / temperature_, of_row[sum], 1 / temperature_, by_logprob, by_entropy, entropy - log_sum});
        if (is_own) row[place] = static_cast<T>(-by_logprob * std::expm1(z) - by_entropy * std::exp(z) * (z + entropy));
      }
    });
  });
}

namespace {

// Calls body(first row, rows) for blocks of rows: what is computed for them in float64 takes little memory then.
template <class Body>
void in_row_blocks(int64_t rows, const Body& body) {
  constexpr int64_t kRows = 256;
  for (int64_t first = 0; first < rows; first += kRows) body(first, std::min(kRows, rows - first));
}

}  // namespace

void LabelLogprobs::add_on_gpu(const at::Tensor& logits, int64_t first_row) {
  const Share own = own_of(logits.size(1));
  in_row_blocks(logits.size(0), [&](int64_t first, int64_t rows) {
    const at::Tensor x = logits.narrow(0, first, rows).to(at::kDouble);
    const at::Tensor most = x.amax({1}), z = (x - most.unsqueeze(1)).div_(temperature_), weights = z.exp();
    const at::Tensor places = labels_.narrow(0, first_row + first, rows) - own.begin;
    const at::Tensor is_own = (places >= 0).logical_and(places < own.count);
    const at::Tensor found = x.gather(1, places.clamp(0, own.count - 1).unsqueeze(1)).squeeze(1);
    numbers_.narrow(0, first_row + first, rows)
        .copy_(at::stack(
            {most, weights.sum(1), (weights * z.clamp_min(-1e300)).sum(1), found.masked_fill(is_own.logical_not(), 0)}, 1));
  });
}

void LabelLogprobs::gradient_on_gpu(const at::Tensor& logits, const at::Tensor& of_logprob, const at::Tensor& of_entropy,
                                    int64_t first_row) const {
  const Share own = own_of(logits.size(1));
  in_row_blocks(logits.size(0), [&](int64_t first, int64_t rows) {
    const at::Tensor of_rows = numbers_.narrow(0, first_row + first, rows), labels = labels_.narrow(0, first_row + first, rows);
    const at::Tensor log_sum = of_rows.narrow(1, sum, 1).log(), part = logits.narrow(0, first, rows);
    const at::Tensor logp = part.to(at::kDouble).sub_(of_rows.narrow(1, largest, 1)).div_(temperature_).sub_(log_sum);
    const at::Tensor p = logp.exp(), places = (labels - own.begin).unsqueeze(1);
    const at::Tensor is_own = (places >= 0).logical_and(places < own.count).to(at::kDouble);
    at::Tensor gradient = at::zeros_like(p);
    const auto column = [&](const at::Tensor& x) { return x.narrow(0, first_row + first, rows).to(at::kDouble).unsqueeze(1); };
    if (of_logprob.defined()) {
      gradient.sub_(p).scatter_add_(1, places.clamp(0, own.count - 1), is_own);
      gradient.mul_(column(of_logprob));
    }
    if (of_entropy.defined()) {
      const at::Tensor entropy = log_sum - of_rows.narrow(1, weighted, 1) / of_rows.narrow(1, sum, 1);
      gradient.sub_(p * (logp.clamp_min(-1e300) + entropy) * column(of_entropy));
    }
    gradient.div_(temperature_).masked_fill_(labels.eq(ignore_index_).unsqueeze(1), 0);
    at::Tensor(part).copy_(gradient);
  });
}

}  // namespace zt::nn
