#include "zt/model/unit.h"

#include <algorithm>
#include <numeric>

#include "zt/base/error.h"
#include "zt/base/words.h"

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

UpdatedSlice Unit::updated_slice(int64_t part, int64_t parts) const {
  const Slice slice = slice_of(layout.chunk, part, parts);
  const auto here = [&](UnitData data) -> const DataSlice& {
    const std::vector<DataSlice>& all = slices_of(data);
    if (parts != std::ssize(all)) fault("unit {} is cut into {} slices, not {}", index, all.size(), parts);
    const DataSlice& found = all[static_cast<size_t>(part)];
    if (!found.is_here) fault("slice {} of the {} of unit {} is not in memory", part, word_of(data), index);
    return found;
  };
  const auto cut = [&](const at::Tensor& whole) { return whole.narrow(0, slice.first, slice.count); };
  UpdatedSlice updated;
  updated.grad = is_sliced(UnitData::grads) ? here(UnitData::grads).tensors.at("grad_shard") : cut(grad_shard);
  updated.shard = is_sliced(UnitData::params) ? here(UnitData::params).tensors.at("shard") : cut(shard);
  if (is_sliced(UnitData::state)) {
    for (const auto& [name, tensor] : here(UnitData::state).tensors) {
      if (name == "master") updated.master = tensor;
      else updated.state[name.substr(std::string_view("state.").size())] = tensor;
    }
  } else {
    for (const auto& [name, tensor] : state) updated.state[name] = cut(tensor);
    if (has_own_master) updated.master = cut(master);
  }
  if (!has_own_master) updated.master = std::exchange(updated.shard, at::Tensor());
  return updated;
}

bool UnitPlan::is_spread() const {
  UnitPlan plan = *this;
  plan.held = true;
  plan.slices = 1;
  plan.state_home = plan.grads_home = plan.params_home = {};
  return plan != UnitPlan{};
}

std::vector<std::string> UnitPlan::replica_axes() const {
  std::vector<std::string> axes;
  std::ranges::copy_if(sum_axes, std::back_inserter(axes),
                       [&](const std::string& axis) { return std::ranges::find(shard_axes, axis) == shard_axes.end(); });
  return axes;
}

}  // namespace zt
