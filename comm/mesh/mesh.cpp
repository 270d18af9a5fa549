#include "mesh.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "backend/checked.h"
#include "mesh/make_backend.h"
#include "null/null_backend.h"
#include "recorder/report.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/comm/alike.h"
#include "zt/process/log.h"

namespace zt::comm {

namespace {

// Makes the communicators of a mesh's axes, on the backends that the script names or on the default ones.
class Factory {
 public:
  Factory(const World& world, const MeshOptions& options) : world_(world), options_(options) {}

  AxisLink describe(const Group& group) const { return link_of(backend_of(group)); }

  Communicators make(const std::vector<int>& ranks, const std::string& name) {
    const auto place = std::find(ranks.begin(), ranks.end(), world_.rank) - ranks.begin();
    const Group group{name, static_cast<int>(place), ranks};
    const auto data = make_data(group);
    if (world_.dry || !describe(group).is_on_device) return {data, data};
    // Not the host communicator of the nccl backend itself: that one has an order of calls of its own.
    return {data, make_communicator(world_, flat_backend(world_), group.renamed(name + "/control"), options_.settings)};
  }

 private:
  std::shared_ptr<Communicator> make_data(const Group& group) {
    if (world_.dry) return stand_in(group);
    const std::string backend = backend_of(group);
    if (named_backend(group.name).empty() && world_.size > 1) log_backend(group, backend);
    return make_communicator(world_, backend, group, options_.settings);
  }

  // Returns the backend of the group's ranks; in a dry run, the backend that they would have.
  std::string backend_of(const Group& group) const {
    const std::string named = named_backend(group.name);
    if (!named.empty()) return named;
    if (!world_.dry) return default_backend(world_, group, options_.settings);
    if (!world_.backend.empty()) return world_.backend;
    World run = world_;
    if (run.launch == Launch::single) run.launch = Launch::mpi;  // a run of several ranks is assumed to use mpirun
    return default_backend(run, group, planned_settings());
  }

  // Returns the settings of the run that a dry run stands for.
  Settings planned_settings() const {
    Settings settings = options_.settings;
    if (settings.ranks_per_node == 0) settings.ranks_per_node = world_.ranks_per_node;
    return settings;
  }

  // Makes the null backend in place of the backend that a run would have. It shares memory if that backend does.
  std::shared_ptr<Communicator> stand_in(Group group) const {
    if (group.size() > 1) check_machines(world_, backend_of(group), group, planned_settings());
    const bool shares = describe(group).shares_memory;
    return std::make_shared<CheckedCommunicator>(make_null_backend(std::move(group), shares));
  }

  // Returns the backend that the script names for the axis; empty if it names none.
  std::string named_backend(const std::string& axis) const {
    const auto own = options_.backends.find(axis);
    if (own != options_.backends.end()) return own->second;
    return options_.backend.empty() ? common_backend(axis) : options_.backend;
  }

  // Returns the backend of a joined axis ("tp+dp") if all its parts have the same one; else empty.
  std::string common_backend(const std::string& name) const {
    std::string common;
    for (size_t begin = 0; begin <= name.size();) {
      const size_t end = std::min(name.find('+', begin), name.size());
      const auto part = options_.backends.find(name.substr(begin, end - begin));
      if (part == options_.backends.end() || (!common.empty() && part->second != common)) return "";
      common = part->second;
      begin = end + 1;
    }
    return common;
  }

  // Logs one line per axis name of several ranks and backend, over all meshes of the process.
  void log_backend(const Group& group, const std::string& backend) const {
    if (world_.rank != 0 || group.size() == 1) return;
    static std::mutex mutex;
    static std::set<std::string> logged;
    const std::string text = fmt::format("axis {}: {} ranks communicate over {}", group.name, group.size(), backend);
    const std::lock_guard lock(mutex);
    if (logged.insert(text).second) log(LogLevel::info, world_, text);
  }

  const World world_;
  const MeshOptions options_;
};

// Throws Misuse on all ranks, before they would wait for one another, unless all have the same axes and backends.
void check_meshes_alike(const World& world, const MeshShape& shape, const MeshOptions& options) {
  if (world.dry || world.size == 1) return;
  Facts facts{{"the mesh", shape.text()}, {"the mesh's backend", options.backend.empty() ? kNotGiven : options.backend}};
  for (const auto& [axis, backend] : options.backends) facts.emplace_back(fmt::format("the backend of axis '{}'", axis), backend);
  const Group group = whole_group(world, "mesh");
  const auto control = make_communicator(world, default_backend(world, group, options.settings), group, options.settings);
  check_alike(facts, control.get(), "the ranks would wait for one another in different groups");
}

}  // namespace

std::shared_ptr<Mesh> make_mesh(const World& world, const MeshOptions& options) {
  const std::string complaint = world.backend.empty() ? "" : one_of(backend_names())(world.backend);
  if (!complaint.empty()) misuse("ztoolkit plan: --backend {}", complaint);
  const auto factory = std::make_shared<Factory>(world, options);
  const auto make = [factory](const std::vector<int>& ranks, const std::string& name) { return factory->make(ranks, name); };
  const auto describe = [factory](const std::vector<int>& ranks, const std::string& name) {
    return factory->describe({name, 0, ranks});
  };
  MeshShape shape(options.axes, world.size);
  check_meshes_alike(world, shape, options);
  return Mesh::make(std::move(shape), world.rank, make, describe);
}

}  // namespace zt::comm
