#include "phase.h"

#include <cmath>
#include <numeric>

#include "permutation.h"
#include "zt/base/error.h"

namespace zt::data {

void check_phase(const RecordPhase& phase) {
  double sum = 0;
  for (const double weight : phase.weights) {
    if (!std::isfinite(weight) || weight < 0) misuse("phase.weights must be numbers of at least 0, got {}", weight);
    sum += weight;
  }
  if (!(sum > 0) || !std::isfinite(sum)) misuse("phase.weights must have a number above 0: they are the shares of the phases");
  if (phase.index < 0 || phase.index >= static_cast<int64_t>(phase.weights.size())) {
    misuse("phase.index must lie between 0 and {}, because there are {} weights, got {}", phase.weights.size() - 1,
           phase.weights.size(), phase.index);
  }
}

std::string text_of(const RecordPhase& phase) {
  return fmt::format("phase {} of {{{}}}", phase.index, fmt::join(phase.weights, ", "));
}

std::vector<int64_t> chosen_records(int64_t records, double validation, Split split, const std::optional<RecordPhase>& phase) {
  const IndexRange range = split_range(records, validation, split);
  std::vector<int64_t> chosen;
  if (!phase) {
    chosen.resize(static_cast<size_t>(range.size()));
    std::iota(chosen.begin(), chosen.end(), range.begin);
    return chosen;
  }
  if (range.size() == 0) return chosen;
  const auto n = static_cast<double>(range.size());
  const auto sum_before = [&](int64_t k) { return std::accumulate(phase->weights.begin(), phase->weights.begin() + k, 0.0); };
  const auto border = [&](int64_t k) {  // exact for the last one, whose quotient is 1
    return static_cast<int64_t>(n * (sum_before(k) / sum_before(static_cast<int64_t>(phase->weights.size()))));
  };
  const int64_t begin = border(phase->index), end = border(phase->index + 1);
  // The last argument tells this key from those of epochs.
  const Permutation place_of(range.size(), Philox::keyed(0, Purpose::shuffle, 0, 2));
  for (int64_t i = 0; i < range.size(); ++i) {
    const int64_t place = place_of(i);
    if (place >= begin && place < end) chosen.push_back(range.begin + i);
  }
  return chosen;
}

}  // namespace zt::data
