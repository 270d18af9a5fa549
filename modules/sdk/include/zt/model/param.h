// A parameter of a model: a description, and its values while they are present.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "zt/base/object.h"

namespace zt {

// How the copies of a parameter on the ranks of one mesh axis relate.
enum class Placement : uint8_t {
  sharded,                // each rank has another part
  replicated_same_data,   // all have it and see the same data: their gradients are equal
  replicated_other_data,  // all have it and see other data: gradients are summed over the axis
};

struct AxisPlacement {
  std::string axis;
  Placement placement;
};

// Fills out[j] with the initial value of element first + j (row-major over the global shape), in double.
// A pure function of (seed, parameter name, element index), so any rank can make any part.
using InitFn = std::function<void(uint64_t seed, const std::string& name, int64_t first, std::span<double> out)>;

InitFn init_zeros();
InitFn init_ones();
InitFn init_constant(double value);
InitFn init_normal(double mean, double std);
InitFn init_uniform(double low, double high);
InitFn init_tensor(at::Tensor values);  // any dtype, the parameter's global shape

// The placement on `axis`: what is given, else the default of the axis's name (see Param::placements).
Placement placement_on(const std::vector<AxisPlacement>& given, const std::string& axis);

struct Param {
  std::string name;  // within its layer ("weight"); once a model is built unique there: "blocks.0.attention.qkv.weight"
  std::vector<int64_t> shape;
  InitFn init;
  bool trainable = true;
  bool is_matrix = true;  // false for norms and biases: no weight decay unless asked
  std::vector<AxisPlacement>
      placements;                      // where it differs from the defaults: same_data on tp and pp, other_data on all other axes
  at::Tensor values;                   // the full parameter, an autograd leaf, while its unit is present
  std::vector<std::string> dims = {};  // what its dims are ("out", "in"), for people; empty: not said
  std::string local_name = {};         // the name within its layer; set by the first model that takes the parameter

  int64_t numel() const;
  Placement placement(const std::string& axis) const;
  // The values, for Layer::forward. Misuse, naming the parameter, when its unit is not present.
  const at::Tensor& get() const;
};

ZT_OBJECT(Param)

}  // namespace zt
