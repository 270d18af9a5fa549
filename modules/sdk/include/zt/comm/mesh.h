// A mesh: all ranks of the run, arranged along named axes. Functions get their mesh as an argument; there is no global group.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "zt/base/object.h"
#include "zt/base/option_texts.h"
#include "zt/comm/comm.h"

namespace zt {

struct AxisSize {
  std::string name;
  int size = 1;
  bool operator==(const AxisSize&) const = default;
};

// The names and sizes of the axes, and which ranks are in which group. Ranks are numbered row-major: the last axis varies
// fastest. Plain data.
class MeshShape {
 public:
  MeshShape() = default;
  // One size may be -1: it becomes world_size divided by the product of the others. Throws Misuse if the product of all sizes is
  // not world_size.
  MeshShape(std::vector<AxisSize> axes, int world_size);

  const std::vector<AxisSize>& axes() const { return axes_; }
  int world_size() const { return world_size_; }
  bool has(const std::string& axis) const;
  int size(const std::string& axis) const;                  // throws Misuse, with the nearest name, if there is no such axis
  int coordinate(int rank, const std::string& axis) const;  // 0-based index of `rank` along `axis`
  // Returns the ranks that differ from `rank` only along `axes`, row-major in the given order of axes. `rank` is one of them.
  std::vector<int> group(int rank, std::span<const std::string> axes) const;
  std::string text() const;  // "dp=2 x tp=4"

  bool operator==(const MeshShape&) const = default;

 private:
  size_t index_of(const std::string& axis) const;
  int stride(const std::string& axis) const;  // from a rank to the next along `axis`
  std::vector<AxisSize> axes_;
  int world_size_ = 1;
};

// A rank and its mesh: a pass needs both to build that rank's program. An axis that the mesh does not have counts as one of size
// 1. Plain data.
struct Coord {
  MeshShape shape;
  int rank = 0;
  int size(const std::string& axis) const { return shape.has(axis) ? shape.size(axis) : 1; }
  int operator[](const std::string& axis) const { return shape.has(axis) ? shape.coordinate(rank, axis) : 0; }
  // Return the number of ranks along the axes, joined in this order, and the rank's index among them. 1 and 0 without axes.
  int size(std::span<const std::string> axes) const;
  int index(std::span<const std::string> axes) const;
};

class Mesh;

// How the ranks along an axis communicate. Passes read this and never a communicator. Plain data: equal on every rank, and in
// `ztoolkit plan` the same as in the planned run.
struct AxisLink {
  std::string backend;         // backend of all groups along the axis ("nccl"); empty if groups have different backends
  bool shares_memory = false;  // in every group the ranks can share one tensor (Communicator::allocate_shared)
  bool is_on_device = false;   // its tensors are on GPUs, and it sends while kernels run
  bool has_levels = false;     // its collectives work inside machines first, then across
  bool operator==(const AxisLink&) const = default;
};

// The communicators over one group of ranks. A backend in host memory has one for both.
struct Communicators {
  std::shared_ptr<Communicator> data;     // on the backend's device
  std::shared_ptr<Communicator> control;  // in host memory: plain values, counts, limbs of the norm, outcomes of checks
};

// One axis, or several joined axes, from the view of one rank.
struct Axis {
  std::string name;                // "dp"; joined: "dp+ep"
  std::vector<std::string> names;  // of the axes that it joins
  int size = 1;
  int coordinate = 0;
  AxisLink link = {};
  std::shared_ptr<Communicator> communicator;  // for data, on the backend's device
  std::shared_ptr<Communicator> control;       // as in Communicators; may be `communicator` itself
  std::weak_ptr<const Mesh> mesh;
};

class Mesh : public std::enable_shared_from_this<Mesh> {
 public:
  // Makes the communicators over `ranks` (world ranks, in group order). Collective over these ranks.
  using Factory = std::function<Communicators(const std::vector<int>& ranks, const std::string& name)>;
  // Returns the link of the group of these ranks. Must return the same on every rank, including ranks that are not in the group.
  using Describe = std::function<AxisLink(const std::vector<int>& ranks, const std::string& name)>;

  // Makes the communicators of all axes. Collective over the world. Without `describe` all links are empty.
  static std::shared_ptr<Mesh> make(MeshShape shape, int rank, Factory factory, Describe describe = nullptr);

  const MeshShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  Coord coord() const { return {shape_, rank_}; }
  std::shared_ptr<Axis> axis(const std::string& name) const;  // throws Misuse, with the nearest name
  // Returns one axis over several joined axes, in the given order. The first call for these names is collective over the world.
  std::shared_ptr<Axis> join(const std::vector<std::string>& names);
  // Returns how the ranks along these axes, joined in this order, communicate. Makes nothing.
  AxisLink link(const std::vector<std::string>& names) const;
  // Returns the axis over all ranks of the mesh, in rank order. Collective as `join`.
  std::shared_ptr<Axis> world();
  // Returns the communicator for data over those ranks of this rank's group along `axes` whose indices are in `members`,
  // ascending; this rank's is one of them. The first call for these arguments is collective over the members.
  std::shared_ptr<Communicator> among(const std::vector<std::string>& axes, const std::vector<int>& members);
  // Returns this rank's end of the channel between two ranks of its group along `axes`: index `from` sends to index `to`. The
  // first call for these arguments makes it, on the axis's communicator, and is collective over the two ranks; `join` is called
  // first for several axes. Calls with other names or depths make other channels.
  std::shared_ptr<Channel> channel(const std::vector<std::string>& axes, int from, int to, const std::string& name, int depth);
  // Returns how often it was called, from 1: it numbers what all ranks make over the mesh, in one order.
  int next_number() { return ++numbers_; }
  // Returns a mesh with other axes over the same ranks. Collective over the world.
  std::shared_ptr<Mesh> refactor(std::vector<AxisSize> axes);

 private:
  Mesh(MeshShape shape, int rank, Factory factory, Describe describe);
  std::shared_ptr<Axis> make_axis(const std::vector<std::string>& names);
  AxisLink link_of(const std::vector<std::string>& names, const std::string& axis) const;

  MeshShape shape_;
  int rank_;
  int numbers_ = 0;
  Factory factory_;
  Describe describe_;
  std::vector<std::shared_ptr<Axis>> axes_;                          // the axes of shape_ first, then the joined ones
  std::map<std::vector<int>, std::shared_ptr<Communicator>> among_;  // by world ranks
  using ChannelKey = std::tuple<std::vector<std::string>, int, int, std::string, int>;  // the arguments of `channel`
  std::map<ChannelKey, std::shared_ptr<Channel>> channels_;
};

ZT_OBJECT(Mesh)
ZT_OBJECT(Axis)

// The text of an option that is an axis: its name.
void add_text(const std::string& name, const std::shared_ptr<Axis>& axis, OptionTexts& texts);

}  // namespace zt
