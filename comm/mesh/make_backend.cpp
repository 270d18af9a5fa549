#include "make_backend.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "backend/checked.h"
#include "local/local_transport.h"
#include "messages/host_backend.h"
#include "mpi/mpi_transport.h"
#include "mpi/runtime.h"
#include "null/null_backend.h"
#include "queue/signal.h"
#include "recorder/report.h"
#include "shm/shm_backend.h"
#include "two_level/levels.h"
#include "two_level/two_level_backend.h"
#include "zt/base/error.h"
#include "zt/base/machine.h"
#include "zt/base/options.h"
#ifdef ZT_HAS_NCCL
#include "nccl/nccl_backend.h"
#endif

namespace zt::comm {

namespace {

std::unique_ptr<Backend> make_mpi(const World& world, Group group, const Settings& settings) {
  if (world.launch != Launch::mpi)
    misuse("backend 'mpi' needs ranks started by mpirun: mpirun -n {} ztoolkit run ...", world.size);
  return std::make_unique<HostBackend>(make_mpi_transport(world, std::move(group), settings.timeout));
}

std::unique_ptr<Backend> make_local(const World& world, Group group, const Settings&) {
  if (group.size() > 1 && !world.threads) {
    misuse("backend 'local' needs ranks that are threads of one process: ztoolkit run --threads {} ..., or take backend 'mpi'",
           world.size);
  }
  return std::make_unique<HostBackend>(make_local_transport(world.threads, std::move(group)));
}

std::unique_ptr<Backend> make_flat(const World& world, Group group, const Settings& settings) {
  return (world.launch == Launch::mpi ? make_mpi : make_local)(world, std::move(group), settings);
}

std::unique_ptr<Backend> make_shm(const World& world, Group group, const Settings& settings) {
  CheckedCommunicator first_contact(make_flat(world, group, settings));
  first_contact.set_timeout(settings.timeout);
  return make_shm_backend(first_contact, std::move(group), abort_check(world.threads));
}

std::unique_ptr<Backend> make_two_level(const World& world, Group group, const Settings& settings) {
  const SumOrder order = settings.sum_order.value_or(SumOrder::fixed);
  const LevelGroups groups = level_groups(group, nodes_of(world, group, settings));
  const std::string flat = flat_backend(world);
  Levels levels{make_communicator(world, "shm", groups.inside, settings), make_communicator(world, flat, groups.across, settings),
                make_communicator(world, flat, group.renamed(group.name + "/flat"), settings)};
  return make_two_level_backend(std::move(levels), std::move(group), order, abort_check(world.threads));
}

#ifdef ZT_HAS_NCCL
// Makes the host communicator that an nccl backend needs: it sends NCCL's identifier and compares calls.
std::shared_ptr<Communicator> make_nccl_host(const World& world, const Group& group, const Settings& settings) {
  return make_communicator(world, flat_backend(world), group.renamed(group.name + "/host"), settings);
}

LocalRank local_rank(const World& world) {
  if (world.launch != Launch::mpi) return {world.rank, world.size};
  const char* index = environment("OMPI_COMM_WORLD_LOCAL_RANK");
  if (!index)
    misuse("backend 'nccl' needs the variable OMPI_COMM_WORLD_LOCAL_RANK to choose a GPU: start the ranks by Open MPI's mpirun");
  return {std::atoi(index), world.ranks_per_node};
}
#endif

std::unique_ptr<Backend> make_nccl([[maybe_unused]] const World& world, [[maybe_unused]] Group group,
                                   [[maybe_unused]] const Settings& settings) {
#ifdef ZT_HAS_NCCL
  auto host = make_nccl_host(world, group, settings);
  return make_nccl_backend(std::move(host), std::move(group), settings.sum_order.value_or(SumOrder::any), local_rank(world));
#else
  misuse("backend 'nccl' is not in this build, which was made without CUDA or NCCL: 'mpi' and 'local' work on host memory");
#endif
}

std::unique_ptr<Backend> make_null(const World&, Group group, const Settings&) {
  return make_null_backend(std::move(group));
}

// A backend by its name, and what passes may know of it.
struct NamedBackend {
  std::unique_ptr<Backend> (*make)(const World& world, Group group, const Settings& settings);
  AxisLink link;
};

const std::array<NamedBackend, 6>& backends() {
  static const std::array<NamedBackend, 6> all{{{make_shm, {.backend = "shm", .shares_memory = true}},
                                                {make_mpi, {.backend = "mpi"}},
                                                {make_two_level, {.backend = "two_level", .has_levels = true}},
                                                {make_local, {.backend = "local", .shares_memory = true}},
                                                {make_null, {.backend = "null"}},
                                                {make_nccl, {.backend = "nccl", .is_on_device = true}}}};
  return all;
}

const NamedBackend& backend_named(const std::string& name) {
  const auto found = std::ranges::find(backends(), name, [](const NamedBackend& each) { return each.link.backend; });
  if (found == backends().end()) misuse("unknown backend '{}'{}", name, suggest(name, backend_names()));
  return *found;
}

std::unique_ptr<Backend> with_settings(std::unique_ptr<Backend> backend, const Settings& settings) {
  backend->set_timeout(settings.timeout);
  backend->set_check(settings.check);
  return backend;
}

}  // namespace

void check_machines(const World& world, const std::string& backend, const Group& group, const Settings& settings) {
  if (backend == "shm" && !is_one_node(nodes_of(world, group, settings))) {
    misuse("backend 'shm' needs all ranks of axis '{}' on one machine, and they are on several: take 'mpi' or 'two_level'{}",
           group.name, world.dry ? ", or say by --ranks-per-node how many ranks a machine has" : "");
  }
  if (backend != "two_level") return;
  const std::string reason = why_not_two_level(nodes_of(world, group, settings), settings.sum_order.value_or(SumOrder::fixed));
  if (!reason.empty()) misuse("backend 'two_level' does not suit axis '{}': {}", group.name, reason);
}

const std::vector<std::string>& backend_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NamedBackend& each : backends()) all.push_back(each.link.backend);
    return all;
  }();
  return names;
}

AxisLink link_of(const std::string& backend) {
  return backend_named(backend).link;
}

std::string flat_backend(const World& world) {
  return world.launch == Launch::mpi ? "mpi" : "local";
}

std::unique_ptr<Backend> make_backend(const World& world, const std::string& backend, Group group, const Settings& settings) {
  const NamedBackend& named = backend_named(backend);
  check_machines(world, backend, group, settings);
  set_ranks_here(world.threads ? world.threads->size() : world.ranks_per_node);
  return with_settings(named.make(world, std::move(group), settings), settings);
}

std::vector<int> nodes_of(const World& world, const Group& group, const Settings& settings) {
  std::vector<int> nodes;
  for (const int rank : group.ranks) {
    if (settings.ranks_per_node > 0) nodes.push_back(rank / settings.ranks_per_node);
    else nodes.push_back(world.launch == Launch::mpi ? nodes_of_world(world, settings.timeout)[static_cast<size_t>(rank)] : 0);
  }
  return nodes;
}

bool is_one_node(const std::vector<int>& nodes) {
  return std::adjacent_find(nodes.begin(), nodes.end(), std::not_equal_to<>()) == nodes.end();
}

std::string default_backend(const World& world, const Group& group, const Settings& settings) {
  if (world.launch != Launch::mpi) return "local";
  const auto nodes = nodes_of(world, group, settings);
  if (is_one_node(nodes)) return group.size() <= kMostShmRanks ? "shm" : "mpi";
  return why_not_two_level(nodes, settings.sum_order.value_or(SumOrder::fixed)).empty() ? "two_level" : "mpi";
}

std::shared_ptr<Communicator> make_communicator(const World& world, const std::string& backend, Group group,
                                                const Settings& settings) {
  if (backend == "null") return std::make_shared<CheckedCommunicator>(make_backend(world, backend, std::move(group), settings));
  auto box = black_box(world);  // first, so that a rank that waits in make_backend can be reported
  auto made = make_backend(world, backend, std::move(group), settings);
  return std::make_shared<CheckedCommunicator>(std::move(made), std::move(box));
}

}  // namespace zt::comm
