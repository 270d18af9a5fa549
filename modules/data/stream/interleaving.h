// From which of several sources the samples of a blend come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zt::data {

// Tijdeman's method (The chairman assignment problem, 1980). Let D_i be what source i is owed when sample g is drawn: weight_i *
// (g
// + 1) minus the samples that it has given. Of the sources with D_i >= s = 1 / (2 n - 2), that one gives the sample which would
// be owed 1 - s first, so (1 - s - D_i) / weight_i is least; ties go to the lower index. After g samples, each source has given
// weight_i * g within one sample, for every g. (To draw the source with the largest D_i keeps that bound for two sources only.)
//
// The seed draws numbers that are added to D_i, so that interleavings begin differently. They sum to 0 and are smaller than s,
// which keeps the bound.
//
// A pure function of (weights, seed, g). It computes the numbers in their order, about 10 ns each, and remembers every 2^16-th
// place, so a place that is far ahead takes time once. Threads: one at a time.
class Interleaving {
 public:
  // Requires at least one weight, all above 0.
  Interleaving(std::vector<double> weights, int64_t seed);

  // Sample g is the sample `number` of the source `source`.
  struct Turn {
    size_t source = 0;
    int64_t number = 0;
  };
  Turn turn(int64_t g) const;
  // Returns how many of the samples 0 .. g-1 each source gives.
  const std::vector<int64_t>& given(int64_t g) const;
  const std::vector<double>& weights() const { return weights_; }  // which sum to 1

 private:
  size_t next() const;  // the source of sample given_ is at
  void move_to(int64_t g) const;

  std::vector<double> weights_, offsets_;
  // The place g up to which given_ counts, and given_ at the multiples of kMarkEvery. Only kept to save time.
  mutable int64_t at_ = 0;
  mutable std::vector<int64_t> given_;
  mutable std::vector<std::vector<int64_t>> marks_;
};

}  // namespace zt::data
