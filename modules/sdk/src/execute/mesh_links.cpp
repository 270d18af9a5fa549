#include "mesh_links.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt {

Links::~Links() = default;

bool RankPlace::is_first(const std::vector<std::string>& axes, const std::vector<std::string>& more_data) const {
  const auto is_among = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  return std::ranges::all_of(axes, [&](const std::string& axis) {
    return is_among(sample_axes, axis) || is_among(split_axes, axis) || is_among(more_data, axis) || coord[axis] == 0;
  });
}

MeshLinks::MeshLinks(std::shared_ptr<Mesh> mesh, RankPlace where, const LinkNeeds& needs, int trainer)
    : Links(std::move(where), trainer), mesh_(std::move(mesh)) {
  if (!mesh_) {
    if (!needs.messages.empty())
      misuse("the program sends messages in channel '{}', but no pass gave it a mesh", needs.messages.front().channel);
    if (!needs.axes.empty())
      misuse("the program communicates over '{}', but no pass gave it a mesh", fmt::join(*needs.axes.begin(), "', '"));
    return;
  }
  for (const AxisSize& single : mesh_->shape().axes()) {
    const auto& axis = axes_[{single.name}] = mesh_->axis(single.name);
    const auto device = axis->communicator->device();
    if (device && !device->is_cpu()) device_ = *device;
  }
  for (const auto& joined : needs.axes) axes_[joined] = mesh_->join(joined);
  for (const auto& members : needs.holders) holders_[members] = mesh_->among(place().split_axes, members);
  for (const Message& message : needs.messages) channels_[message] = make_channel(message);
}

std::shared_ptr<Channel> MeshLinks::make_channel(const Message& message) const {
  const int mine = mesh_->coord().index(message.axes);
  const auto [from, to] = message.is_send ? std::pair(mine, message.peer) : std::pair(message.peer, mine);
  const std::string name = fmt::format("{} {} {}>{}", fmt::join(message.axes, "+"), message.channel, from, to);
  return mesh_->channel(message.axes, from, to, name, message.depth);
}

const Axis& MeshLinks::axis(const std::vector<std::string>& axes) const {
  if (const auto known = axes_.find(axes); known != axes_.end()) return *known->second;
  if (!mesh_) misuse("the program communicates over '{}', but no pass gave it a mesh", fmt::join(axes, "', '"));
  for (const std::string& name : axes) mesh_->axis(name);  // throws Misuse, with the nearest name, for an unknown one
  misuse(
      "nothing in the program has declared to communicate over '{}' joined: an action names these axes in its `axes`, and a layer "
      "in axes()",
      fmt::join(axes, "', '"));
}

Communicator& MeshLinks::holders(const Unit& unit) const {
  const auto known = holders_.find(unit.holders);
  if (known == holders_.end()) misuse("unit {} is held by one rank only: there is nothing to tie", unit.index);
  return *known->second;
}

Channel& MeshLinks::channel(const Message& message) const {
  const auto known = channels_.find(message);
  if (known == channels_.end()) misuse("the rank's programs have no message in channel '{}' like this one", message.channel);
  return *known->second;
}

}  // namespace zt
