#include "mesh.h"

#include <algorithm>
#include <cmath>

#include "checked.h"
#include "host/host_backend.h"
#include "local/local_transport.h"
#include "mpi/mpi_transport.h"
#include "mpi/runtime.h"
#include "null/null_backend.h"
#include "shm/shm_backend.h"
#include "zt/error.h"
#include "zt/options.h"
#ifdef ZT_HAS_NCCL
#include "nccl/nccl_backend.h"
#endif

namespace zt::comm {

namespace {

const std::vector<std::string> kBackends{"shm", "mpi", "local", "null", "nccl"};

struct FixedOptions {
  std::vector<std::string> order;
  std::string backend;
  double timeout = std::chrono::duration<double>(kDefaultTimeout).count();
};

FixedOptions parse_fixed(const Value::Table& table) {
  static const auto schema =
      Schema<FixedOptions>("comm.mesh")
          .optional("order", &FixedOptions::order, "axis names, slowest to fastest over the ranks")
          .optional("backend", &FixedOptions::backend, "how ranks communicate", Check<std::string>(one_of(kBackends)))
          .optional("timeout", &FixedOptions::timeout, "seconds an operation may take", Check<double>(above(0)));
  Value::Table fixed;
  for (const auto& option : schema.options()) {
    if (const auto found = table.find(option.key); found != table.end()) fixed.insert(*found);
  }
  return schema.parse(fixed);
}

// Every other key is an axis, so a mistyped option looks like one: its value tells.
AxisSize parse_axis(const std::string& name, const Value& value) {
  AxisSize axis{name, 0};
  if (!value.get_if<int64_t>() && !value.get_if<double>()) {
    const std::vector<std::string> options{"order", "backend", "timeout"};
    misuse("comm.mesh: '{}' is {}, but the number of ranks of an axis is an integer; or, should it be an option{}", name,
           value.type_name(), suggest(name, options));
  }
  convert(value, "comm.mesh." + name, axis.size);
  return axis;
}

std::unique_ptr<Transport> make_transport(const World& world, const std::string& backend, Group group,
                                          std::chrono::milliseconds timeout) {
  if (backend == "mpi") {
    if (world.launch != Launch::mpi)
      misuse("backend 'mpi' needs ranks started by mpirun: mpirun -n {} ztoolkit run ...", world.size);
    return make_mpi_transport(world, std::move(group), timeout);
  }
  if (group.size() > 1 && !world.threads) {
    misuse("backend 'local' needs ranks that are threads of one process: ztoolkit run --threads {} ..., or take backend 'mpi'",
           world.size);
  }
  return make_local_transport(world.threads, std::move(group));
}

std::unique_ptr<Backend> make_shm_backend(const World& world, Group group, std::chrono::milliseconds timeout) {
  const bool are_processes = world.launch == Launch::mpi;
  if (are_processes && !is_one_node(world, timeout)) {
    misuse("backend 'shm' needs all ranks on one machine, and this run's are on several: take backend = \"mpi\"");
  }
  Checked first_contact(std::make_unique<HostBackend>(make_transport(world, are_processes ? "mpi" : "local", group, timeout)));
  first_contact.set_timeout(timeout);
  return make_shm_backend(first_contact, std::move(group), [threads = world.threads] {
    if (threads && threads->aborted()) throw Aborted("another rank failed");
  });
}

std::unique_ptr<Backend> make_backend(const World& world, const std::string& backend, Group group,
                                      std::chrono::milliseconds timeout) {
  if (std::find(kBackends.begin(), kBackends.end(), backend) == kBackends.end()) {
    misuse("unknown backend '{}'{}", backend, suggest(backend, kBackends));
  }
  if (backend == "null") return make_null_backend(std::move(group));
  if (backend == "nccl") {
#ifdef ZT_HAS_NCCL
    const std::string host = world.launch == Launch::mpi ? "mpi" : "local";
    return make_nccl_backend(std::make_unique<HostBackend>(make_transport(world, host, std::move(group), timeout)));
#else
    misuse("backend 'nccl' is not in this build, which was made without CUDA or NCCL: 'mpi' and 'local' work on host memory");
#endif
  }
  if (backend == "shm") return make_shm_backend(world, std::move(group), timeout);
  return std::make_unique<HostBackend>(make_transport(world, backend, std::move(group), timeout));
}

}  // namespace

MeshOptions parse_mesh_options(const Value& value) {
  const auto* table = value.get_if<Value::Table>();
  if (!table) misuse("comm.mesh: a table of axes expected, as in comm.mesh{{dp = -1}}, got {}", value.type_name());
  const FixedOptions fixed = parse_fixed(*table);
  MeshOptions options;
  std::vector<std::string> names;
  for (const auto& [key, size] : *table) {
    if (key == "order" || key == "backend" || key == "timeout") continue;
    options.axes.push_back(parse_axis(key, size));
    names.push_back(key);
  }
  if (names.empty()) misuse("comm.mesh: no axis is given: comm.mesh{{dp = -1}} takes all ranks");
  if (names.size() > 1 && fixed.order.empty()) {
    misuse("comm.mesh: a Lua table has no order, so with {} axes say which varies slowest to fastest: order = {{'{}'}}",
           names.size(), fmt::join(names, "', '"));
  }
  if (!fixed.order.empty() && !std::is_permutation(names.begin(), names.end(), fixed.order.begin(), fixed.order.end())) {
    misuse("comm.mesh: order = {{'{}'}} has to hold each axis once: '{}'", fmt::join(fixed.order, "', '"),
           fmt::join(names, "', '"));
  }
  const auto place = [&](const AxisSize& axis) { return std::find(fixed.order.begin(), fixed.order.end(), axis.name); };
  std::sort(options.axes.begin(), options.axes.end(), [&](const AxisSize& a, const AxisSize& b) { return place(a) < place(b); });
  options.backend = fixed.backend;
  options.timeout = std::chrono::milliseconds(std::llround(std::ceil(fixed.timeout * 1000)));
  return options;
}

std::string default_backend(const World& world, std::chrono::milliseconds timeout) {
  if (world.dry) return "null";
  if (world.launch != Launch::mpi) return "local";
  return is_one_node(world, timeout) ? "shm" : "mpi";
}

std::shared_ptr<Communicator> make_communicator(const World& world, const std::string& backend, Group group,
                                                std::chrono::milliseconds timeout) {
  auto communicator = std::make_shared<Checked>(make_backend(world, backend, std::move(group), timeout));
  communicator->set_timeout(timeout);
  return communicator;
}

std::shared_ptr<Mesh> make_mesh(const World& world, const MeshOptions& options) {
  const std::string backend = options.backend.empty() ? default_backend(world, options.timeout) : options.backend;
  const auto timeout = options.timeout;
  return Mesh::make(MeshShape(options.axes, world.size), world.rank,
                    [world, backend, timeout](const std::vector<int>& ranks, const std::string& name) {
                      const auto place = std::find(ranks.begin(), ranks.end(), world.rank) - ranks.begin();
                      return make_communicator(world, backend, {name, static_cast<int>(place), ranks}, timeout);
                    });
}

}  // namespace zt::comm
