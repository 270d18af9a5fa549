// What a script says of a mesh: comm.mesh{...} as data.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/backend.h"
#include "zt/base/value.h"
#include "zt/comm/mesh.h"

namespace zt::comm {

// How the communicators of a mesh behave, whatever their backend.
struct Settings {
  std::chrono::milliseconds timeout = kDefaultTimeout;
  CheckMode check = CheckMode::first;
  std::optional<SumOrder> sum_order = {};  // nothing: fixed in host memory, any on nccl
  int ranks_per_node = 0;                  // every so many world ranks count as one machine; 0: the machines they run on
};

struct MeshOptions {
  std::vector<AxisSize> axes = {};                   // the last one varies fastest over the ranks
  std::string backend = {};                          // of all axes without one of their own; empty: what suits the ranks
  std::map<std::string, std::string> backends = {};  // by axis
  Settings settings = {};
};

const std::vector<std::string>& backend_names();

// {dp = 2, tp = -1, order = {"dp", "tp"}, backend = "mpi", timeout = 60}: all keys that are no option are axes. `order` is needed
// with two axes or more. Misuse for anything else.
MeshOptions parse_mesh_options(const Value& value);

}  // namespace zt::comm
