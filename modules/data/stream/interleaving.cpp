#include "interleaving.h"

#include <algorithm>
#include <numeric>

#include "zt/random/rng.h"

namespace zt::data {

namespace {

constexpr int64_t kMarkEvery = int64_t{1} << 16;

// The least debt with which a source may give a sample, 1 / (2 n - 2).
double least_debt(size_t sources) {
  return sources < 2 ? 0 : 1 / (2 * static_cast<double>(sources) - 2);
}

// Returns numbers smaller than `most` that sum to 0.
std::vector<double> draw_offsets(size_t sources, double most, int64_t seed) {
  // The last argument tells this key from those of epochs and phases.
  const Philox key = Philox::keyed(static_cast<uint64_t>(seed), Purpose::shuffle, 0, 3);
  std::vector<double> offsets;
  for (size_t i = 0; i < sources; ++i) offsets.push_back(static_cast<double>(key.block(0, i)[0]) / 0x1p32);
  const double mean = std::accumulate(offsets.begin(), offsets.end(), 0.0) / static_cast<double>(sources);
  for (double& offset : offsets) offset = (offset - mean) * most;
  return offsets;
}

}  // namespace

Interleaving::Interleaving(std::vector<double> weights, int64_t seed)
    : weights_(std::move(weights)),
      offsets_(draw_offsets(weights_.size(), least_debt(weights_.size()), seed)),
      given_(weights_.size()),
      marks_{given_} {
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  for (double& weight : weights_) weight /= sum;
}

size_t Interleaving::next() const {
  constexpr double kRounding = 1e-6;  // above that of weight * g for g below 2^32; beyond, the bound grows with the rounding
  const double least = least_debt(weights_.size());
  size_t best = 0, most_owed = 0;
  double first = 0, largest = 0;
  bool is_found = false;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const double debt = weights_[i] * static_cast<double>(at_ + 1) - static_cast<double>(given_[i]) + offsets_[i];
    if (i == 0 || debt > largest) largest = debt, most_owed = i;
    if (debt < least - kRounding) continue;
    const double due = (1 - least - debt) / weights_[i];
    if (!is_found || due < first) first = due, best = i, is_found = true;
  }
  return is_found ? best : most_owed;
}

void Interleaving::move_to(int64_t g) const {
  const auto mark = std::min(static_cast<size_t>(g / kMarkEvery), marks_.size() - 1);
  const int64_t place = static_cast<int64_t>(mark) * kMarkEvery;
  if (g < at_ || at_ < place) {
    at_ = place;
    given_ = marks_[mark];
  }
  while (at_ < g) {
    ++given_[next()];
    ++at_;
    if (at_ == static_cast<int64_t>(marks_.size()) * kMarkEvery) marks_.push_back(given_);
  }
}

Interleaving::Turn Interleaving::turn(int64_t g) const {
  move_to(g);
  const size_t source = next();
  return {source, given_[source]};
}

const std::vector<int64_t>& Interleaving::given(int64_t g) const {
  move_to(g);
  return given_;
}

}  // namespace zt::data
