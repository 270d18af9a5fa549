#include "zt/model/unit.h"

#include <algorithm>
#include <numeric>

#include "zt/base/error.h"

namespace zt {

int64_t UpdatedPart::state_bytes(at::ScalarType master) const {
  int64_t bytes = 0;
  for (const StateInfo& info : states) {
    bytes += std::accumulate(info.shape.begin(), info.shape.end(), int64_t{1}, std::multiplies<>()) *
             static_cast<int64_t>(c10::elementSize(info.dtype_with(master)));
  }
  return bytes;
}

FlatLayout::FlatLayout(int64_t numel, int ranks) : numel(numel), ranks(ranks) {
  if (numel < 0) misuse("a flat layout cannot have {} elements: give 0 or more", numel);
  if (ranks < 1) misuse("a flat layout over {} ranks has no owner: give at least one rank", ranks);
  const int64_t row = kBlock * ranks;
  chunk = kBlock * ((numel + row - 1) / row);
}

int64_t FlatLayout::begin(int rank) const {
  return std::min(numel, rank * chunk);
}
int64_t FlatLayout::end(int rank) const {
  return std::min(numel, (rank + 1) * chunk);
}

bool UnitPlan::is_spread() const {
  UnitPlan plan = *this;
  plan.held = true;
  return plan != UnitPlan{};
}

std::vector<std::string> UnitPlan::replica_axes() const {
  std::vector<std::string> axes;
  std::ranges::copy_if(sum_axes, std::back_inserter(axes),
                       [&](const std::string& axis) { return std::ranges::find(shard_axes, axis) == shard_axes.end(); });
  return axes;
}

}  // namespace zt
