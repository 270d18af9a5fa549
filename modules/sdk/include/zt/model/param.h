// A parameter of a model: its description. Its values belong to a trainer; layers read them by Context::param.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zt/base/box.h"
#include "zt/base/object.h"
#include "zt/comm/mesh.h"
#include "zt/gemm/packed.h"

namespace zt {

// How a parameter is placed on the ranks along one mesh axis.
enum class Placement : uint8_t {
  sharded,                // each rank has another part of it
  replicated_same_data,   // each rank has all of it, and all see the same data: their gradients are equal
  replicated_other_data,  // each rank has all of it, and each sees other data: gradients are summed over the axis
};

// Consecutive rows of a dim of which each rank gets a share: share_of(size / unit) units of `unit` rows, such as the rows of an
// attention head.
struct CutGroup {
  int64_t size = 0, unit = 1;
  bool operator==(const CutGroup&) const = default;
};

// The placement on one axis. If sharded, dim `dim` of the tensor is cut among the `parts` ranks of the axis: each of the groups,
// which together are the dim, by itself. Without groups the dim is one group with a unit of 1. Several axes may cut one dim: they
// do so as one axis with the product of their sizes, of which the first varies slowest.
struct AxisPlacement {
  std::string axis;
  Placement placement;
  int dim = 0;
  int parts = 1;
  std::vector<CutGroup> groups = {};
  bool operator==(const AxisPlacement&) const = default;
};

// Fills out[j] with the initial value of element first + j (row-major), in double. A pure function of
// (seed, parameter name, element index), so any rank can make any part.
using InitFn = std::function<void(uint64_t seed, const std::string& name, int64_t first, std::span<double> out)>;

InitFn init_zeros();
InitFn init_ones();
InitFn init_constant(double value);
InitFn init_normal(double mean, double std);
InitFn init_uniform(double low, double high);
InitFn init_tensor(at::Tensor values);  // any dtype, the shape of the parameter

// Returns the placement on `axis`: the one in `given`, or else the default for the axis's name (see Param::placements).
Placement placement_on(const std::vector<AxisPlacement>& given, const std::string& axis);

// Returns the boxes of a tensor of shape `shape` that the rank `coord` holds. Its memory has their elements, each box row-major,
// one box after the other: this is row-major order for local_shape_of. A rank whose share is empty has no box.
std::vector<Box> boxes_of(const std::vector<int64_t>& shape, const std::vector<AxisPlacement>& placements, const Coord& coord);
// Returns the shape of what the rank holds. No rank holds more than the one whose coordinates are 0.
std::vector<int64_t> local_shape_of(const std::vector<int64_t>& shape, const std::vector<AxisPlacement>& placements,
                                    const Coord& coord);

// Returns the elements of a unit's flat layout that such a parameter takes on the rank: elements, or bytes if it is packed.
// Packed parameters begin at multiples of kPackAlign in their unit.
int64_t flat_numel_of(const std::vector<int64_t>& shape, const std::vector<AxisPlacement>& placements, const PackSpec& pack,
                      const Coord& coord);

// In which formats a layer can multiply by a matrix (zt/gemm/packed.h).
enum class Packing : uint8_t { none, up_to_int8, any };

// A rank holds all of a parameter, or its boxes if it is sharded on some axis.
struct Param {
  std::string name;  // local to its layer ("weight"); after a model is built unique in it: "blocks.0.attention.qkv.weight"
  std::vector<int64_t> shape;  // of the whole tensor
  InitFn init;
  bool trainable = true;
  bool is_matrix = true;    // false for norms and biases: by default these get no weight decay
  bool is_adapter = false;  // of a LoRA adapter: Context::adapters says whether layers use it
  // Placements other than the default, which is replicated_same_data on tp, on pp and on tensor axes of layers, and
  // replicated_other_data on all other axes.
  // Parameters of one layer whose placements differ in kind on an axis are in different units.
  std::vector<AxisPlacement> placements;
  std::vector<std::string> dims = {};  // names of the dims ("out", "in"), for people; empty: not given
  std::string local_name = {};         // the name within its layer; set by the first model with the parameter
  Packing packing = Packing::none;     // the formats of Model::pack that it may have
  PackSpec pack = {};                  // its format; set by Model::pack

  int64_t numel() const;  // of the whole tensor
  // Returns what Context::param of the innermost running layer on this thread returns: of a packed one a packed_tensor. Throws
  // Misuse, with the parameter's name, outside of a forward: also in the backward of an autograd function, which keeps the tensor
  // that its forward has read.
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

// Throws Misuse, with the parameter's name, unless its placements cut it into boxes: one per axis, along dims that it has, in
// groups that together are the dim. Models call it for each parameter.
void check_placements(const Param& param);

ZT_OBJECT(Param)

}  // namespace zt
