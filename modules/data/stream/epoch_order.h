// The order of samples in epochs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "steps.h"

namespace zt::data {

// A sample of an epoch: `sample` is an index in 0 .. samples-1. The same index may give other tokens in another epoch.
struct Place {
  int64_t epoch = 0, sample = 0;
};

// Sample number g of a run is index g mod samples of epoch g / samples. `shuffle` permutes each epoch by (seed, epoch). Threads:
// any.
class EpochOrder {
 public:
  // Requires samples >= 1.
  EpochOrder(int64_t samples, int64_t seed, bool shuffle) : samples_(samples), seed_(seed), shuffle_(shuffle) {}
  int64_t samples() const { return samples_; }
  std::vector<Place> places(std::span<const int64_t> numbers) const;

 private:
  int64_t samples_, seed_;
  bool shuffle_;
};

// Returns `options` with what decides the order in epochs added to its `order`.
StreamOptions with_epoch_order(StreamOptions options);

}  // namespace zt::data
