#include "zt/model/param.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <set>

#include "zt/base/error.h"
#include "zt/base/hash.h"
#include "zt/gemm/packed_stack.h"
#include "zt/random/rng.h"

namespace zt {

ZT_DEFINE_OBJECT(Param, "Param")

InitFn init_constant(double value) {
  return [value](uint64_t, const std::string&, int64_t, std::span<double> out) { std::fill(out.begin(), out.end(), value); };
}
InitFn init_zeros() {
  return init_constant(0);
}
InitFn init_ones() {
  return init_constant(1);
}

InitFn init_normal(double mean, double std) {
  return [mean, std](uint64_t seed, const std::string& name, int64_t first, std::span<double> out) {
    Philox::keyed(seed, Purpose::init, stable_hash(name)).normal(0, first, out);
    for (double& x : out) x = mean + std * x;
  };
}

InitFn init_uniform(double low, double high) {
  return [low, high](uint64_t seed, const std::string& name, int64_t first, std::span<double> out) {
    std::vector<float> unit(out.size());
    Philox::keyed(seed, Purpose::init, stable_hash(name)).uniform(0, first, unit);
    for (size_t i = 0; i < out.size(); ++i) out[i] = low + (high - low) * unit[i];
  };
}

InitFn init_tensor(at::Tensor values) {
  const at::Tensor flat = values.detach().to(at::kCPU, at::kDouble).contiguous().view({-1});
  return [flat](uint64_t, const std::string& name, int64_t first, std::span<double> out) {
    if (first + static_cast<int64_t>(out.size()) > flat.numel()) {
      misuse("the initial values of '{}' have {} elements, {} are needed", name, flat.numel(), first + out.size());
    }
    std::copy_n(flat.data_ptr<double>() + first, out.size(), out.begin());
  };
}

int64_t Param::numel() const {
  return c10::multiply_integers(shape);
}

Placement placement_on(const std::vector<AxisPlacement>& given, const std::string& axis) {
  for (const auto& placement : given) {
    if (placement.axis == axis) return placement.placement;
  }
  const bool sees_same_data = axis == "tp" || axis == "pp";
  return sees_same_data ? Placement::replicated_same_data : Placement::replicated_other_data;
}

namespace {

// By dim: the ranges of its rows that a rank holds, in the order of its memory.
using Ranges = std::vector<std::vector<Share>>;

std::vector<Share> ranges_of(const std::vector<CutGroup>& groups, int parts, int index) {
  std::vector<Share> ranges;
  int64_t first = 0;
  for (const CutGroup& group : groups) {
    const Share units = share_of(group.size / group.unit, parts, index);
    add_range(ranges, {first + units.begin * group.unit, units.count * group.unit});
    first += group.size;
  }
  return ranges;
}

Ranges ranges_of(const std::vector<int64_t>& shape, const std::vector<AxisPlacement>& placements, const Coord& coord) {
  Ranges ranges;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    int parts = 1, index = 0;
    std::vector<CutGroup> groups{{shape[dim], 1}};
    for (const AxisPlacement& on : placements) {
      if (on.placement != Placement::sharded || on.dim != static_cast<int>(dim)) continue;
      parts *= on.parts;
      index = index * on.parts + coord[on.axis];
      if (!on.groups.empty()) groups = on.groups;
    }
    ranges.push_back(ranges_of(groups, parts, index));
  }
  return ranges;
}

// Adds the boxes that begin with `box`, which has the dims before `dim`. `last`: the last dim with several ranges. To be
// row-major, a box has one row of each dim before it.
void add_boxes(const Ranges& ranges, size_t dim, size_t last, Box box, std::vector<Box>& boxes) {
  if (dim == ranges.size()) return boxes.push_back(std::move(box));
  box.begin.push_back(0);
  box.end.push_back(0);
  for (const Share& range : ranges[dim]) {
    const int64_t step = dim < last ? 1 : range.count;
    for (int64_t row = range.begin; row < range.end(); row += step) {
      box.begin.back() = row;
      box.end.back() = row + step;
      add_boxes(ranges, dim + 1, last, box, boxes);
    }
  }
}

void check_groups(const Param& param, const AxisPlacement& on) {
  const int64_t rows = param.shape[static_cast<size_t>(on.dim)];
  int64_t total = 0;
  for (const CutGroup& group : on.groups) {
    if (group.size < 0 || group.unit < 1 || group.size % group.unit != 0)
      misuse("parameter '{}' is cut on axis '{}' in a group of {} rows in units of {}: units must divide the rows", param.name,
             on.axis, group.size, group.unit);
    total += group.size;
  }
  if (total != rows)
    misuse("parameter '{}' is cut on axis '{}' in groups of {} rows together, but its dim {} has {}", param.name, on.axis, total,
           on.dim, rows);
}

}  // namespace

void check_placements(const Param& param) {
  std::set<std::string> axes;
  std::map<int, const AxisPlacement*> of_dims;
  for (const AxisPlacement& on : param.placements) {
    if (!axes.insert(on.axis).second) misuse("parameter '{}' has two placements on axis '{}'", param.name, on.axis);
    if (on.placement != Placement::sharded) continue;
    if (on.dim < 0 || on.dim >= static_cast<int>(param.shape.size()))
      misuse("parameter '{}' is cut along dim {} on axis '{}', but it has {} dims, counted from 0", param.name, on.dim, on.axis,
             param.shape.size());
    if (on.parts < 1) misuse("parameter '{}' is cut into {} parts on axis '{}': give at least 1", param.name, on.parts, on.axis);
    if (const auto [other, is_first] = of_dims.try_emplace(on.dim, &on); !is_first && other->second->groups != on.groups)
      misuse("the axes '{}' and '{}' cut dim {} of parameter '{}' in different groups: give them the same", other->second->axis,
             on.axis, on.dim, param.name);
    if (!on.groups.empty()) check_groups(param, on);
  }
}

std::vector<Box> boxes_of(const std::vector<int64_t>& shape, const std::vector<AxisPlacement>& placements, const Coord& coord) {
  const Ranges ranges = ranges_of(shape, placements, coord);
  size_t last = 0;
  for (size_t dim = 0; dim < ranges.size(); ++dim) {
    if (ranges[dim].size() > 1) last = dim;
  }
  std::vector<Box> boxes;
  add_boxes(ranges, 0, last, {}, boxes);
  return boxes;
}

int64_t flat_numel_of(const std::vector<int64_t>& shape, const std::vector<AxisPlacement>& placements, const PackSpec& pack,
                      const Coord& coord) {
  const std::vector<int64_t> local = local_shape_of(shape, placements, coord);
  return pack.format == PackFormat::plain ? c10::multiply_integers(local) : packed_bytes(pack, local);
}

std::vector<int64_t> local_shape_of(const std::vector<int64_t>& shape, const std::vector<AxisPlacement>& placements,
                                    const Coord& coord) {
  std::vector<int64_t> local;
  for (const std::vector<Share>& of_dim : ranges_of(shape, placements, coord)) {
    int64_t& rows = local.emplace_back(0);
    for (const Share& range : of_dim) rows += range.count;
  }
  return local;
}

}  // namespace zt
