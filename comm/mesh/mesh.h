// The options of comm.mesh{...} as data, and meshes whose axes have communicators.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "zt/base/value.h"
#include "zt/comm/mesh.h"
#include "zt/process/world.h"

namespace zt::comm {

// Settings of the communicators of a mesh, for any backend.
struct Settings {
  std::chrono::milliseconds timeout = kDefaultTimeout;
  CheckMode check = CheckMode::first;
  std::optional<SumOrder> sum_order = {};  // nullopt means fixed in host memory, any on nccl
  int ranks_per_node = 0;                  // count this many consecutive world ranks as one machine; 0 means the real machines
};

struct MeshOptions {
  std::vector<AxisSize> axes = {};                   // the last one varies fastest over the ranks
  std::string backend = {};                          // of all axes that `backends` does not name; empty means the default
  std::map<std::string, std::string> backends = {};  // by axis
  Settings settings = {};
};

const std::vector<std::string>& backend_names();  // make_backend.cpp lists the backends

// Parses {dp = 2, tp = -1, order = {"dp", "tp"}, backend = "mpi", timeout = 60}. All keys that are not options are axes. `order`
// is required with two axes or more, unless all are among pp, dp, ep, cp, tp: these come in this order. Throws
// Misuse for anything else.
MeshOptions parse_mesh_options(const Value& value);

// Makes a mesh. Collective over the world. Logs each backend that was chosen by default, once per axis name.
std::shared_ptr<Mesh> make_mesh(const World& world, const MeshOptions& options);

}  // namespace zt::comm
