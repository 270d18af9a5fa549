// Makes meshes whose axes have communicators.
#pragma once

#include <memory>

#include "mesh_options.h"
#include "zt/comm/mesh.h"
#include "zt/process/world.h"

namespace zt::comm {

// Makes a mesh. Collective over the world. Logs each backend that was chosen by default, once per axis name.
std::shared_ptr<Mesh> make_mesh(const World& world, const MeshOptions& options);

}  // namespace zt::comm
