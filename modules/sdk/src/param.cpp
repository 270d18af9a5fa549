#include "zt/param.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "zt/error.h"
#include "zt/layer.h"
#include "zt/rng.h"
#include "zt/tensor.h"

namespace zt {

ZT_DEFINE_OBJECT(Param, "Param")
ZT_DEFINE_OBJECT(Layer, "Layer")

Context::~Context() = default;
Layer::~Layer() = default;
Counts Layer::count(const std::function<at::Tensor(const std::string&)>&) const {
  return {};
}

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
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

Placement placement_on(const std::vector<AxisPlacement>& given, const std::string& axis) {
  for (const auto& placement : given) {
    if (placement.axis == axis) return placement.placement;
  }
  const bool sees_same_data = axis == "tp" || axis == "pp";
  return sees_same_data ? Placement::replicated_same_data : Placement::replicated_other_data;
}

Placement Param::placement(const std::string& axis) const {
  return placement_on(placements, axis);
}

const at::Tensor& Param::get() const {
  if (!values.defined()) misuse("parameter '{}' is not present: its unit is not unsharded here", name);
  return values;
}

}  // namespace zt
