#include "zt/model/param.h"

#include <c10/util/accumulate.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/hash.h"
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

std::vector<int64_t> logical_shape(std::vector<int64_t> shape, const std::vector<AxisPlacement>& placements) {
  for (const auto& [axis, placement, dim, parts] : placements) {
    if (placement == Placement::sharded) shape.at(static_cast<size_t>(dim)) *= parts;
  }
  return shape;
}

}  // namespace zt
