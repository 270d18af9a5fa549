// A parameter of a model: its description. Its values belong to a trainer; layers read them by Context::param.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zt/base/object.h"

namespace zt {

// How a parameter is placed on the ranks along one mesh axis.
enum class Placement : uint8_t {
  sharded,                // each rank has another part of it
  replicated_same_data,   // each rank has all of it, and all see the same data: their gradients are equal
  replicated_other_data,  // each rank has all of it, and each sees other data: gradients are summed over the axis
};

// The placement on one axis. If sharded, dim `dim` of the logical tensor is divided into `parts` equal slices, one per rank of
// the axis.
struct AxisPlacement {
  std::string axis;
  Placement placement;
  int dim = 0;
  int parts = 1;
  bool operator==(const AxisPlacement&) const = default;
};

// Fills out[j] with the initial value of element first + j (row-major over the logical tensor), in double. A pure function of
// (seed, parameter name, element index), so any rank can make any part.
using InitFn = std::function<void(uint64_t seed, const std::string& name, int64_t first, std::span<double> out)>;

InitFn init_zeros();
InitFn init_ones();
InitFn init_constant(double value);
InitFn init_normal(double mean, double std);
InitFn init_uniform(double low, double high);
InitFn init_tensor(at::Tensor values);  // any dtype, the shape of the logical tensor

// Returns the placement on `axis`: the one in `given`, or else the default for the axis's name (see Param::placements).
Placement placement_on(const std::vector<AxisPlacement>& given, const std::string& axis);

// Returns the shape of the logical tensor of which each rank holds a box of shape `shape`.
std::vector<int64_t> logical_shape(std::vector<int64_t> shape, const std::vector<AxisPlacement>& placements);

// A parameter is a box of a logical tensor: all of it, or the rank's slice if it is sharded on some axis.
struct Param {
  std::string name;  // local to its layer ("weight"); after a model is built unique in it: "blocks.0.attention.qkv.weight"
  std::vector<int64_t> shape;  // of this rank's box
  InitFn init;
  bool trainable = true;
  bool is_matrix = true;  // false for norms and biases: by default these get no weight decay
  // Placements other than the default, which is replicated_same_data on tp and pp and replicated_other_data on all other axes.
  // Parameters of one layer with different placements are in different units.
  std::vector<AxisPlacement> placements;
  std::vector<std::string> dims = {};  // names of the dims ("out", "in"), for people; empty: not given
  std::string local_name = {};         // the name within its layer; set by the first model with the parameter

  int64_t numel() const;
  // Returns what Context::param of the innermost running layer on this thread returns. Throws Misuse, with the parameter's name,
  // outside of a forward: also in the backward of an autograd function, which keeps the tensor that its forward has read.
  const at::Tensor& get() const;
};

// Makes a parameter with the default placements. dims: the meaning of each dim, for example "hidden"; may be empty.
inline std::shared_ptr<Param> make_param(std::string name, std::vector<int64_t> shape, InitFn init, bool is_matrix,
                                         std::vector<std::string> dims) {
  auto param = std::make_shared<Param>();
  param->name = std::move(name);
  param->shape = std::move(shape);
  param->init = std::move(init);
  param->is_matrix = is_matrix;
  param->dims = std::move(dims);
  return param;
}

using Params = std::vector<std::shared_ptr<Param>>;

ZT_OBJECT(Param)

}  // namespace zt
