#include "sample/own_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace zt::infer {

namespace {

// Returns the unchanged logit at a place among this rank's tokens.
double raw_logit(const RowTask& task, int64_t place) {
  return task.logits[static_cast<size_t>(place)];
}

// Returns the place, among this rank's tokens, of the one that is drawn.
int64_t own_place(const RowTask& task, const SharedRow& shared) {
  double sum = shared.before;
  size_t drawn = 0;
  for (size_t i = 0; i < shared.changed.size(); ++i) {
    const double weight = std::exp((shared.changed[i] - shared.most) / task.options->temperature);
    if (weight > 0) drawn = i;
    sum += weight;
    if (sum > task.uniform * shared.total) break;
  }
  return static_cast<int64_t>(drawn);
}

}  // namespace

double sum_of_weights(std::span<const double> logits, double most, double temperature) {
  double sum = 0;
  if (most == kNeverDrawn) return sum;
  for (const double logit : logits) sum += std::exp((logit - most) / temperature);
  return sum;
}

int64_t class_of(double logit, double most, double temperature) {
  const double distance = (most - logit) / temperature / kClassWidth;
  return distance < kClasses - 1 ? static_cast<int64_t>(distance) : kClasses - 1;
}

bool is_drawn(const RowTask& task) {
  return task.options != nullptr;
}

bool is_cut_off(const RowTask& task) {
  if (!is_drawn(task) || task.options->temperature == 0) return false;
  return task.options->top_k > 0 || task.options->top_p < 1 || task.options->min_p > 0;
}

void describe_row(const RowTask& task, int64_t first, std::vector<double>& changed, double* to) {
  const bool has_tokens = !task.logits.empty();
  to[kIsWrong] =
      std::ranges::any_of(task.logits, [](double logit) { return std::isnan(logit) || logit == -kNeverDrawn; }) ? 1 : 0;
  to[kRawMost] = to[kMost] = kNeverDrawn;
  to[kHasKnown] = task.known && *task.known >= first && *task.known < first + std::ssize(task.logits) ? 1 : 0;
  if (!has_tokens || to[kIsWrong] != 0) return;
  to[kRawMost] = *std::ranges::max_element(task.logits);
  to[kRawSum] = sum_of_weights(task.logits, to[kRawMost], 1);
  if (to[kHasKnown] != 0) to[kKnown] = raw_logit(task, *task.known - first);
  if (!is_drawn(task)) return;
  changed.assign(task.logits.begin(), task.logits.end());
  change_logits(changed, first, *task.options, *task.counts, task.forbidden);
  if (std::ranges::any_of(changed, [](double logit) { return std::isnan(logit) || logit == -kNeverDrawn; })) {
    to[kMost] = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  const auto best = std::ranges::max_element(changed);
  to[kMost] = *best;
  to[kBest] = static_cast<double>(first + (best - changed.begin()));
  to[kBestRaw] = raw_logit(task, best - changed.begin());
  if (task.options->temperature > 0) to[kSum] = sum_of_weights(changed, *best, task.options->temperature);
}

void write_candidates(const RowTask& task, const SharedRow& shared, const TokenShare& share, double*& to) {
  const auto write = [&](int64_t place) {
    *to++ = static_cast<double>(share.first + place);
    *to++ = shared.changed[static_cast<size_t>(place)];
    *to++ = raw_logit(task, place);
  };
  if (shared.owner == share.rank) write(own_place(task, shared));
  for (size_t i = 0; shared.last_class >= 0 && i < shared.changed.size(); ++i) {
    const double logit = shared.changed[i];
    if (logit != kNeverDrawn && class_of(logit, shared.most, task.options->temperature) <= shared.last_class)
      write(static_cast<int64_t>(i));
  }
  if (!task.top) return;
  for (const int32_t place : likeliest(task.logits, *task.top)) {
    *to++ = static_cast<double>(share.first + place);
    *to++ = raw_logit(task, place);
  }
}

}  // namespace zt::infer
