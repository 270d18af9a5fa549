#include "zt/comm/mesh.h"

#include <algorithm>
#include <optional>

#include "zt/base/error.h"

namespace zt {

ZT_DEFINE_OBJECT(Mesh, "Mesh")
ZT_DEFINE_OBJECT(Axis, "Axis")

MeshShape::MeshShape(std::vector<AxisSize> axes, int world_size) : axes_(std::move(axes)), world_size_(world_size) {
  const std::string asked = text();
  int64_t product = 1;
  AxisSize* inferred = nullptr;
  for (auto& axis : axes_) {
    if (axis.name.empty()) misuse("a mesh axis needs a name");
    if (std::ranges::count(axes_, axis.name, &AxisSize::name) > 1) misuse("mesh {}: axis '{}' is given twice", asked, axis.name);
    if (axis.size == -1) {
      if (inferred) misuse("mesh {}: only one axis may be -1", asked);
      inferred = &axis;
    } else if (axis.size < 1) {
      misuse("mesh {}: axis '{}' must have at least one rank (or -1: what is left)", asked, axis.name);
    } else {
      product *= axis.size;
    }
  }
  if (inferred && world_size % product == 0) {
    inferred->size = static_cast<int>(world_size / product);
    product = world_size;
  }
  if (product != world_size) {
    const char* why = inferred ? "does not divide" : "is not";
    misuse("mesh {}: the product {} {} the {} ranks of this run: change an axis, or the number of ranks to {}", asked, product,
           why, world_size, product);
  }
}

size_t MeshShape::index_of(const std::string& axis) const {
  const auto found = std::ranges::find(axes_, axis, &AxisSize::name);
  if (found == axes_.end())
    misuse("the mesh {} has no axis '{}'{}", text(), axis, suggest(axis, names_of(axes_, &AxisSize::name)));
  return static_cast<size_t>(found - axes_.begin());
}

bool MeshShape::has(const std::string& axis) const {
  return std::ranges::find(axes_, axis, &AxisSize::name) != axes_.end();
}

int MeshShape::size(const std::string& axis) const {
  return axes_[index_of(axis)].size;
}

int MeshShape::stride(const std::string& axis) const {
  int stride = 1;
  for (size_t i = axes_.size() - 1; i > index_of(axis); --i) stride *= axes_[i].size;
  return stride;
}

int MeshShape::coordinate(int rank, const std::string& axis) const {
  return rank / stride(axis) % size(axis);
}

std::vector<int> MeshShape::group(int rank, std::span<const std::string> axes) const {
  std::vector<int> ranks{rank};
  for (const auto& axis : axes) {
    const int step = stride(axis);
    std::vector<int> wider;
    for (const int base : ranks) {
      const int first = base - coordinate(base, axis) * step;
      for (int k = 0; k < size(axis); ++k) wider.push_back(first + k * step);
    }
    ranks = std::move(wider);
  }
  return ranks;
}

std::string MeshShape::text() const {
  std::string text;
  for (const auto& axis : axes_) text += fmt::format("{}{}={}", text.empty() ? "" : " x ", axis.name, axis.size);
  return text;
}

int Coord::size(std::span<const std::string> axes) const {
  int ranks = 1;
  for (const auto& axis : axes) ranks *= size(axis);
  return ranks;
}

int Coord::index(std::span<const std::string> axes) const {
  int place = 0;
  for (const auto& axis : axes) place = place * size(axis) + (*this)[axis];
  return place;
}

Mesh::Mesh(MeshShape shape, int rank, Factory factory, Describe describe)
    : shape_(std::move(shape)), rank_(rank), factory_(std::move(factory)), describe_(std::move(describe)) {}

std::shared_ptr<Mesh> Mesh::make(MeshShape shape, int rank, Factory factory, Describe describe) {
  std::shared_ptr<Mesh> mesh(new Mesh(std::move(shape), rank, std::move(factory), std::move(describe)));
  for (const auto& axis : mesh->shape_.axes()) mesh->axes_.push_back(mesh->make_axis({axis.name}));
  return mesh;
}

std::shared_ptr<Axis> Mesh::make_axis(const std::vector<std::string>& names) {
  const std::vector<int> ranks = shape_.group(rank_, names);
  auto axis = std::make_shared<Axis>();
  axis->name = fmt::format("{}", fmt::join(names, "+"));
  axis->names = names;
  axis->size = static_cast<int>(ranks.size());
  axis->coordinate = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
  Communicators made = factory_(ranks, axis->name);
  axis->communicator = std::move(made.data);
  axis->control = std::move(made.control);
  axis->link = link_of(names, axis->name);
  axis->mesh = weak_from_this();
  return axis;
}

AxisLink Mesh::link_of(const std::vector<std::string>& names, const std::string& axis) const {
  if (!describe_) return {};
  std::optional<AxisLink> link;
  for (int rank = 0; rank < shape_.world_size(); ++rank) {
    const bool is_first = std::ranges::all_of(names, [&](const auto& name) { return shape_.coordinate(rank, name) == 0; });
    if (!is_first) continue;  // the group's first rank stands for the group
    const AxisLink group = describe_(shape_.group(rank, names), axis);
    if (!link) link = group;
    if (link->backend != group.backend) link->backend.clear();
    link->shares_memory = link->shares_memory && group.shares_memory;
    link->is_on_device = link->is_on_device && group.is_on_device;
    link->has_levels = link->has_levels && group.has_levels;
  }
  return *link;
}

AxisLink Mesh::link(const std::vector<std::string>& names) const {
  const std::string name = fmt::format("{}", fmt::join(names, "+"));
  const auto known = std::ranges::find(axes_, name, &Axis::name);
  return known != axes_.end() ? (*known)->link : link_of(names, name);
}

std::shared_ptr<Axis> Mesh::axis(const std::string& name) const {
  for (const auto& axis : axes_) {
    if (axis->name == name) return axis;
  }
  shape_.size(name);  // throws Misuse, with the names of the axes
  return nullptr;
}

std::shared_ptr<Axis> Mesh::join(const std::vector<std::string>& names) {
  if (names.empty()) misuse("mesh:join needs at least one axis name");
  for (size_t i = 0; i < names.size(); ++i) {
    shape_.size(names[i]);
    if (std::count(names.begin(), names.end(), names[i]) > 1) misuse("mesh:join: axis '{}' is given twice", names[i]);
  }
  const std::string name = fmt::format("{}", fmt::join(names, "+"));
  const auto known = std::ranges::find(axes_, name, &Axis::name);
  return known != axes_.end() ? *known : axes_.emplace_back(make_axis(names));
}

std::shared_ptr<Axis> Mesh::world() {
  return join(names_of(shape_.axes(), &AxisSize::name));
}

std::shared_ptr<Communicator> Mesh::among(const std::vector<std::string>& axes, const std::vector<int>& members) {
  const std::vector<int> group = shape_.group(rank_, axes);
  if (members.size() == group.size()) return join(axes)->communicator;
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(group.at(static_cast<size_t>(member)));
  auto& communicator = among_[ranks];
  if (!communicator) communicator = factory_(ranks, fmt::format("{}[{}]", fmt::join(axes, "+"), fmt::join(members, ","))).data;
  return communicator;
}

std::shared_ptr<Channel> Mesh::channel(const std::vector<std::string>& axes, int from, int to, const std::string& name,
                                       int depth) {
  auto& channel = channels_[{axes, from, to, name, depth}];
  if (!channel) channel = join(axes)->communicator->channel(from, to, depth, name);
  return channel;
}

std::shared_ptr<Mesh> Mesh::refactor(std::vector<AxisSize> axes) {
  return make(MeshShape(std::move(axes), shape_.world_size()), rank_, factory_, describe_);
}

void add_text(const std::string& name, const std::shared_ptr<Axis>& axis, OptionTexts& texts) {
  if (axis) texts[name] = axis->name;
}

}  // namespace zt
