#include "zt/execute/gradient_sum.h"

#include <ATen/ops/add.h>

#include <algorithm>

namespace zt {

namespace {

// Returns the rank's part of `grad`.
at::Tensor part_of_grad(const Unit& unit) {
  return unit.grad.narrow(0, unit.rank * unit.layout.chunk, unit.layout.chunk);
}

}  // namespace

bool sums_parts(const Unit& unit) {
  return unit.layout.ranks > 1 || unit.owns_grad_shard();
}

at::Tensor summed_part(const Unit& unit, GradientPart part) {
  if (!sums_parts(unit)) return unit.grad;
  return part == GradientPart::whole ? unit.grad_shard : part_of_grad(unit);
}

// The sum is in `grad_shard` if this is a buffer of its own, else in `grad_sum`. Both cases make the same additions in the same
// order.
void accumulate(Unit& unit, GradientPart part) {
  if (unit.owns_grad_shard()) {
    if (part == GradientPart::first) unit.grad_shard.copy_(part_of_grad(unit));
    else unit.grad_shard.add_(part_of_grad(unit));
    return;
  }
  if (part == GradientPart::first) unit.grad_sum.copy_(unit.grad_shard);
  else if (part == GradientPart::middle) unit.grad_sum.add_(unit.grad_shard);
  else at::add_out(unit.grad_shard, unit.grad_sum, unit.grad_shard);
}

void clear_gaps(const StepState& state, int unit, const at::Tensor& flat, int64_t first) {
  const ModelInfo& model = *state.model;
  const Coord& coord = state.links->place().coord;
  int64_t at = first;
  const int64_t end = first + flat.numel();
  const auto clear_until = [&](int64_t next) {
    if (next > at) flat.narrow(0, at - first, std::min(next, end) - at).zero_();
  };
  for (const int index : model.units[unit].params) {
    const ParamInfo& param = model.params[index];
    const int64_t param_end = param.offset + param.local_numel(coord);
    if (!param.trainable || param_end <= at) continue;
    if (param.offset >= end) break;
    clear_until(param.offset);
    at = param_end;
  }
  if (at < end) clear_until(end);
}

}  // namespace zt
