#include "unit_build.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "zt/error.h"

namespace zt {

Unit describe_unit(const ModelInfo& model, int index, const UnitPlan& plan, const Coord& coord) {
  Unit unit;
  unit.index = index;
  const bool is_sharded = plan.state_sharded && !plan.axis.empty();
  unit.layout = FlatLayout(model.units[index].numel, is_sharded ? coord.size(plan.axis) : 1);
  unit.rank = is_sharded ? coord[plan.axis] : 0;
  return unit;
}

void allocate_unit(Unit& unit, const UnitInfo& info, const std::vector<std::string>& state_names, const AllocateFn& allocate,
                   const SharedBuffers& shared) {
  const FlatLayout& layout = unit.layout;
  const auto owned_part = [&](const at::Tensor& whole) { return whole.narrow(0, unit.rank * layout.chunk, layout.chunk); };
  unit.full = shared.full.defined() ? shared.full.narrow(0, 0, layout.padded()) : allocate(layout.padded());
  unit.master = shared.full.defined() ? allocate(layout.chunk) : owned_part(unit.full);
  if (!info.trainable) return;
  unit.grad = shared.grad.defined() ? shared.grad.narrow(0, 0, layout.padded()) : allocate(layout.padded());
  unit.grad_shard = shared.grad.defined() ? allocate(layout.chunk) : owned_part(unit.grad);
  for (const auto& name : state_names) unit.state[name] = at::zeros({layout.chunk}, unit.full.options());
}

void initialise_unit(const Model& model, Unit& unit) {
  constexpr int64_t kStride = 1 << 16;
  std::vector<double> values(kStride);
  unit.full.zero_();  // another unit may have been here
  for (const int index : model.info().units[unit.index].params) {
    const ParamInfo& info = model.info().params[index];
    Param& param = *model.params()[index];
    const at::Tensor flat = unit.full.narrow(0, info.offset, info.numel);
    for (int64_t first = 0; first < info.numel; first += kStride) {
      const std::span<double> part(values.data(), std::min(kStride, info.numel - first));
      param.init(model.seed(), info.name, first, part);
      flat.narrow(0, first, static_cast<int64_t>(part.size()))
          .copy_(at::from_blob(part.data(), {static_cast<int64_t>(part.size())}, at::kDouble));
    }
    param.values = flat.view(info.shape).detach().requires_grad_(info.trainable);
  }
  const at::Tensor owned = unit.full.narrow(0, unit.rank * unit.layout.chunk, unit.layout.chunk);
  if (owned.data_ptr() != unit.master.data_ptr()) unit.master.copy_(owned);
}

std::vector<Segment> segments_of(const ModelInfo& model, const Unit& unit, const Optimizer& optimizer) {
  std::vector<Segment> segments;
  const int64_t shard_begin = unit.layout.begin(unit.rank), shard_end = unit.layout.end(unit.rank);
  for (const int index : model.units[unit.index].params) {
    const ParamInfo& param = model.params[index];
    const int group = param.trainable ? optimizer.group_of(param) : -1;
    const int64_t begin = std::max(param.offset, shard_begin);
    const int64_t end = std::min(param.offset + param.numel, shard_end);
    if (group >= 0 && begin < end) segments.push_back({index, group, begin - shard_begin, end - shard_begin});
  }
  return segments;
}

}  // namespace zt
