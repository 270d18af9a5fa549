// The world's ranks arranged along named axes. A mesh is passed as a value; nothing reads a global group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/comm/comm.h"

namespace zt {

struct AxisSize {
  std::string name;
  int size = 1;
};

// Names, sizes and the arithmetic of ranks. Row-major: the last axis varies fastest. Plain data.
class MeshShape {
 public:
  MeshShape() = default;
  // One size may be -1: what is left of `world_size`. Misuse, with the arithmetic, if the product is not world_size.
  MeshShape(std::vector<AxisSize> axes, int world_size);

  const std::vector<AxisSize>& axes() const { return axes_; }
  int world_size() const { return world_size_; }
  bool has(const std::string& axis) const;
  int size(const std::string& axis) const;                  // Misuse with the nearest name if there is no such axis
  int coordinate(int rank, const std::string& axis) const;  // 0-based place of `rank` along `axis`
  // The ranks that differ from `rank` only along `axes`, row-major in the order given; contains `rank`.
  std::vector<int> group(int rank, std::span<const std::string> axes) const;
  std::string text() const;  // "dp=2 x tp=4"

  bool operator==(const MeshShape& other) const;

 private:
  size_t index_of(const std::string& axis) const;
  std::vector<AxisSize> axes_;
  int world_size_ = 1;
};

// Where a rank stands in a mesh: what a pass needs to build that rank's program. Plain data.
struct Coord {
  MeshShape shape;
  int rank = 0;
  int size(const std::string& axis) const { return shape.has(axis) ? shape.size(axis) : 1; }
  int operator[](const std::string& axis) const { return shape.has(axis) ? shape.coordinate(rank, axis) : 0; }
};

class Mesh;

// What passes may know of how the ranks along an axis communicate. Plain data: equal on every rank, and in `ztoolkit plan` the
// same as in the run that is planned. Passes read this and never a communicator.
struct AxisLink {
  std::string backend;         // of all groups along the axis: "nccl"; empty if they have different ones
  bool shares_memory = false;  // the ranks of every group can hold one tensor together
  bool operator==(const AxisLink&) const = default;
};

// One axis (or several joined) as seen by one rank.
struct Axis {
  std::string name;  // "dp"; joined: "dp+ep"
  int size = 1;
  int coordinate = 0;
  AxisLink link = {};
  std::shared_ptr<Communicator> communicator;
  std::weak_ptr<const Mesh> mesh;
};

class Mesh : public std::enable_shared_from_this<Mesh> {
 public:
  // Makes the communicator over `ranks` (world ranks, in group order); called by all of them.
  using Factory = std::function<std::shared_ptr<Communicator>(const std::vector<int>& ranks, const std::string& name)>;
  // Returns the link of the group of these ranks, whether or not this rank is one of them. Equal on every rank.
  using Describe = std::function<AxisLink(const std::vector<int>& ranks, const std::string& name)>;

  // Makes the communicators of all axes. Collective over the world. Without `describe` no link is known.
  static std::shared_ptr<Mesh> make(MeshShape shape, int rank, Factory factory, Describe describe = nullptr);

  const MeshShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  Coord coord() const { return {shape_, rank_}; }
  std::shared_ptr<Axis> axis(const std::string& name) const;  // Misuse with the nearest name if there is none
  // One axis out of several, ordered as given. Collective over the world on the first call for these names.
  std::shared_ptr<Axis> join(const std::vector<std::string>& names);
  // All ranks of the mesh, in rank order.
  std::shared_ptr<Axis> world();
  // Other axes over the same ranks. Collective.
  std::shared_ptr<Mesh> refactor(std::vector<AxisSize> axes);

 private:
  Mesh(MeshShape shape, int rank, Factory factory, Describe describe);
  std::shared_ptr<Axis> make_axis(const std::vector<std::string>& names);
  AxisLink link_of(const std::vector<std::string>& names, const std::string& axis) const;

  MeshShape shape_;
  int rank_;
  Factory factory_;
  Describe describe_;
  std::vector<std::shared_ptr<Axis>> axes_;  // declared ones first, joined ones behind
};

ZT_OBJECT(Mesh)
ZT_OBJECT(Axis)

}  // namespace zt
