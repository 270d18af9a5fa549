// Emulates a block of GPU threads on the CPU, to run the row algorithms of modules/nn/cuda/device_*.h. Additions have the same
// order as on a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device_run.h"

namespace zt::test {

struct EmulatedBlock {
  int64_t lanes;

  // Runs the last lane first, so that an algorithm that wrongly relies on earlier lanes fails.
  template <class Body>
  void each(int64_t n, const Body& body) const {
    for (int64_t lane = lanes; lane-- > 0;) {
      for (int64_t i = lane; i < n; i += lanes) body(i);
    }
  }

  template <class V, class Take, class Combine>
  V reduce(int64_t n, V start, const Take& take, const Combine& combine) const {
    constexpr int64_t kWarp = 32;
    std::vector<V> own(static_cast<size_t>(lanes), start), warps;
    for (int64_t i = 0; i < n; ++i) take(own[static_cast<size_t>(i % lanes)], i);
    for (int64_t lane = 0; lane < lanes; lane += kWarp) {
      warps.push_back(butterfly(std::vector<V>(own.begin() + lane, own.begin() + lane + kWarp), combine));
    }
    return butterfly(warps, combine);
  }

  template <class Body>
  void once(const Body& body) const {
    body();
  }
  void join() const {}

 private:
  template <class V, class Combine>
  static V butterfly(std::vector<V> values, const Combine& combine) {
    for (size_t offset = values.size() / 2; offset > 0; offset /= 2) {
      const std::vector<V> before = values;
      for (size_t i = 0; i < values.size(); ++i) values[i] = combine(before[i], before[i ^ offset]);
    }
    return values[0];
  }
};

// Calls rows(team, r) for every row, with `lanes` lanes, or with as many as on a GPU if `lanes` is 0.
template <class Rows>
void emulate(const Rows& rows, int64_t lanes = 0) {
  const EmulatedBlock team{lanes ? lanes : nn::device::lanes_for(rows.items())};
  for (int64_t row = 0; row < rows.rows; ++row) rows(team, row);
}

}  // namespace zt::test
