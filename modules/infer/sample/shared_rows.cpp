#include "sample/shared_rows.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "sample/own_row.h"

namespace zt::infer {

namespace {

class SharedDraw {
 public:
  SharedDraw(std::span<const RowTask> tasks, const TokenShare& share)
      : tasks_(tasks), share_(share), rows_(tasks.size()), results_(tasks.size()) {}

  std::vector<RowResult> run() {
    if (tasks_.empty()) return {};
    exchange_sums();
    exchange_classes();
    exchange_candidates();
    return std::move(results_);
  }

 private:
  int64_t tops(const RowTask& task, int64_t tokens) const { return task.top ? std::min(*task.top, tokens) : 0; }
  template <class Body>
  void for_each_row(const Body& body) const {
    at::parallel_for(0, std::ssize(tasks_), 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) body(static_cast<size_t>(row));
    });
  }

  void exchange_sums();
  void combine(size_t row, const at::Tensor& all);
  void find_owner(size_t row, const at::Tensor& all);
  void exchange_classes();
  void find_last_class(size_t row, const double* first_of_rank, int64_t stride);
  void exchange_candidates();
  void finish(size_t row, std::vector<const double*>& from);
  int64_t numbers_of(size_t row, int rank) const;
  int64_t tokens_of(int rank) const { return token_counts_[static_cast<size_t>(rank)]; }

  std::span<const RowTask> tasks_;
  const TokenShare& share_;
  std::vector<SharedRow> rows_;
  std::vector<RowResult> results_;
  std::vector<int64_t> token_counts_;  // by rank
  int ranks_ = 1;
};

void SharedDraw::exchange_sums() {
  const at::Tensor mine = at::zeros({std::ssize(tasks_) + 1, kFields}, at::kDouble);
  auto* numbers = mine.mutable_data_ptr<double>();
  numbers[std::ssize(tasks_) * kFields] = static_cast<double>(share_.count);
  for_each_row([&](size_t row) {
    describe_row(tasks_[row], share_.first, rows_[row].changed, numbers + static_cast<int64_t>(row) * kFields);
  });
  const at::Tensor all = share_.gather(mine);
  ranks_ = static_cast<int>(all.size(0));
  for (int rank = 0; rank < ranks_; ++rank)
    token_counts_.push_back(static_cast<int64_t>(all.const_data_ptr<double>()[(rank + 1) * mine.numel() - kFields]));
  for (size_t row = 0; row < tasks_.size(); ++row) combine(row, all);
}

void SharedDraw::combine(size_t row, const at::Tensor& all) {
  const RowTask& task = tasks_[row];
  SharedRow& shared = rows_[row];
  RowResult& result = results_[row];
  const auto field = [&](int rank, RowField name) {
    return all.const_data_ptr<double>()[(rank * all.size(1) + static_cast<int64_t>(row)) * kFields + name];
  };
  double raw_most = kNeverDrawn;
  bool is_wrong = false;
  for (int rank = 0; rank < ranks_; ++rank) {
    is_wrong = is_wrong || field(rank, kIsWrong) != 0;
    raw_most = std::max(raw_most, field(rank, kRawMost));
  }
  result.can_sample = !is_wrong && raw_most != kNeverDrawn;
  if (!result.can_sample) return;
  double raw_sum = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (field(rank, kRawMost) != kNeverDrawn) raw_sum += field(rank, kRawSum) * std::exp(field(rank, kRawMost) - raw_most);
  }
  shared.log_sum = raw_most + std::log(raw_sum);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (field(rank, kHasKnown) != 0) result.known = field(rank, kKnown) - shared.log_sum;
  }
  if (!is_drawn(task)) return;
  bool can_draw = true;
  for (int rank = 0; rank < ranks_; ++rank) {
    can_draw = can_draw && !std::isnan(field(rank, kMost));
    if (field(rank, kMost) <= shared.most) continue;
    shared.most = field(rank, kMost);
    result.sampled = {static_cast<int32_t>(field(rank, kBest)), 0};
    result.logprob = field(rank, kBestRaw) - shared.log_sum;
  }
  can_draw = can_draw && shared.most != kNeverDrawn;
  if (!can_draw) result.sampled = {-1, 0};
  else if (task.options->temperature > 0) find_owner(row, all);
}

// Finds the rank that has the drawn token, if all tokens remain.
void SharedDraw::find_owner(size_t row, const at::Tensor& all) {
  const RowTask& task = tasks_[row];
  SharedRow& shared = rows_[row];
  std::vector<double> sums;
  for (int rank = 0; rank < ranks_; ++rank) {
    const double* fields = all.const_data_ptr<double>() + (rank * all.size(1) + static_cast<int64_t>(row)) * kFields;
    const bool has_any = fields[kMost] != kNeverDrawn;
    sums.push_back(has_any ? fields[kSum] * std::exp((fields[kMost] - shared.most) / task.options->temperature) : 0);
    shared.total += sums.back();
  }
  shared.counts.assign(static_cast<size_t>(ranks_), 0);
  if (is_cut_off(task)) return;
  double sum = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (sums[static_cast<size_t>(rank)] > 0) {
      shared.owner = rank;
      shared.before = sum;
    }
    sum += sums[static_cast<size_t>(rank)];
    if (sum > task.uniform * shared.total) break;
  }
  shared.counts[static_cast<size_t>(shared.owner)] = 1;
}

void SharedDraw::exchange_classes() {
  std::vector<size_t> cut;
  for (size_t row = 0; row < tasks_.size(); ++row) {
    if (results_[row].can_sample && results_[row].sampled.token >= 0 && is_cut_off(tasks_[row])) cut.push_back(row);
  }
  if (cut.empty()) return;
  const at::Tensor mine = at::zeros({std::ssize(cut), 2, kClasses}, at::kDouble);
  at::parallel_for(0, std::ssize(cut), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const SharedRow& shared = rows_[cut[static_cast<size_t>(i)]];
      const double temperature = tasks_[cut[static_cast<size_t>(i)]].options->temperature;
      double* const counts = mine.mutable_data_ptr<double>() + i * 2 * kClasses;
      for (const double logit : shared.changed) {
        if (logit == kNeverDrawn) continue;
        const int64_t in = class_of(logit, shared.most, temperature);
        counts[in] += 1;
        counts[kClasses + in] += std::exp((logit - shared.most) / temperature);
      }
    }
  });
  const at::Tensor all = share_.gather(mine);
  for (size_t i = 0; i < cut.size(); ++i)
    find_last_class(cut[i], all.const_data_ptr<double>() + static_cast<int64_t>(i) * 2 * kClasses, mine.numel());
}

// All tokens that remain are in the classes up to the one in which the cut-off falls.
void SharedDraw::find_last_class(size_t row, const double* first_of_rank, int64_t stride) {
  const SamplingOptions& options = *tasks_[row].options;
  SharedRow& shared = rows_[row];
  double count = 0, sum = 0;
  int64_t last = -1;
  bool goes_on = true;
  while (goes_on && last + 1 < kClasses) {
    ++last;
    for (int rank = 0; rank < ranks_; ++rank) {
      count += first_of_rank[rank * stride + last];
      sum += first_of_rank[rank * stride + kClasses + last];
    }
    if (options.top_k > 0) {
      goes_on = count < static_cast<double>(options.top_k);
    } else {
      const bool has_enough = options.top_p < 1 && sum >= options.top_p * shared.total * (1 + kMargin);
      const bool rest_is_small =
          options.min_p > 0 && std::exp(-static_cast<double>(last + 1) * kClassWidth) < options.min_p * (1 - kMargin);
      goes_on = !has_enough && !rest_is_small;
    }
  }
  shared.last_class = last;
  for (int rank = 0; rank < ranks_; ++rank) {
    for (int64_t in = 0; in <= last; ++in)
      shared.counts[static_cast<size_t>(rank)] += static_cast<int64_t>(first_of_rank[rank * stride + in]);
  }
}

// Returns how many numbers a rank sends for the row.
int64_t SharedDraw::numbers_of(size_t row, int rank) const {
  if (!results_[row].can_sample) return 0;
  const std::vector<int64_t>& counts = rows_[row].counts;
  return (counts.empty() ? 0 : counts[static_cast<size_t>(rank)] * kNumbers) + 2 * tops(tasks_[row], tokens_of(rank));
}

void SharedDraw::exchange_candidates() {
  std::vector<int64_t> sizes(static_cast<size_t>(ranks_));
  for (int rank = 0; rank < ranks_; ++rank) {
    for (size_t row = 0; row < tasks_.size(); ++row) sizes[static_cast<size_t>(rank)] += numbers_of(row, rank);
  }
  const int64_t most = std::ranges::max(sizes);
  if (most == 0) return;
  const at::Tensor mine = at::zeros({most}, at::kDouble);
  double* to = mine.mutable_data_ptr<double>();
  for (size_t row = 0; row < tasks_.size(); ++row) {
    if (results_[row].can_sample) write_candidates(tasks_[row], rows_[row], share_, to);
  }
  const at::Tensor all = share_.gather(mine);
  std::vector<const double*> from;
  for (int rank = 0; rank < ranks_; ++rank) from.push_back(all.const_data_ptr<double>() + rank * most);
  for (size_t row = 0; row < tasks_.size(); ++row) {
    if (results_[row].can_sample) finish(row, from);
  }
}

// Draws from the candidates of all ranks, and advances `from` over those of the row.
void SharedDraw::finish(size_t row, std::vector<const double*>& from) {
  const RowTask& task = tasks_[row];
  const SharedRow& shared = rows_[row];
  RowResult& result = results_[row];
  std::vector<Candidate> candidates, top;
  std::vector<std::pair<int32_t, double>> unchanged;
  for (int rank = 0; rank < ranks_; ++rank) {
    const double*& next = from[static_cast<size_t>(rank)];
    for (int64_t i = 0; !shared.counts.empty() && i < shared.counts[static_cast<size_t>(rank)]; ++i, next += kNumbers) {
      candidates.emplace_back(next[1], static_cast<int32_t>(next[0]));
      unchanged.emplace_back(static_cast<int32_t>(next[0]), next[2]);
    }
    for (int64_t i = 0; i < tops(task, tokens_of(rank)); ++i, next += 2) top.emplace_back(next[1], static_cast<int32_t>(next[0]));
  }
  std::ranges::sort(top, is_likelier);
  top.resize(static_cast<size_t>(tops(task, std::ssize(top))));
  for (const auto& [logit, token] : top) result.top.emplace_back(token, logit - shared.log_sum);
  if (candidates.empty()) return;
  if (shared.owner >= 0) {
    const double weight = std::exp((candidates[0].first - shared.most) / task.options->temperature);
    result.sampled = {candidates[0].second, std::log(weight / shared.total)};
  } else {
    const std::optional<double> total = task.options->top_k > 0 ? std::nullopt : std::optional(shared.total);
    result.sampled = Sampler().choose(std::move(candidates), shared.most, total, *task.options, task.uniform);
  }
  const auto drawn = std::ranges::find(unchanged, result.sampled.token, &std::pair<int32_t, double>::first);
  result.logprob = drawn->second - shared.log_sum;
}

}  // namespace

std::vector<RowResult> draw_shared(std::span<const RowTask> tasks, const TokenShare& share) {
  return SharedDraw(tasks, share).run();
}

}  // namespace zt::infer
