// From a backend's name to the backend: which ones there are, and what each needs of the run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mesh/mesh_options.h"
#include "zt/process/world.h"

namespace zt::comm {

// As make_communicator, without what `Checked` adds.
std::unique_ptr<Backend> make_backend(const World& world, const std::string& backend, Group group, const Settings& settings);
// A part of an nccl backend over the world. Collective over the world.
std::unique_ptr<Backend> split_backend(const World& world, Backend& nccl_world, Group group, const Settings& settings);

// The machine of each rank of the group, as a number that tells them apart. Collective over the world at the first call, unless
// `ranks_per_node` says it.
std::vector<int> nodes_of(const World& world, const Group& group, const Settings& settings);
bool is_one_node(const std::vector<int>& nodes);

}  // namespace zt::comm
