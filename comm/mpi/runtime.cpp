#include "mpi/runtime.h"

#include <atomic>
#include <mutex>

#include "core/group.h"
#include "mpi/watchdog.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

std::atomic<bool> given_up{false};

void finalize() {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (!is_finalized && !given_up) MPI_Finalize();
}

void initialize() {
  int is_initialized = 0;
  MPI_Initialized(&is_initialized);
  int provided = MPI_THREAD_SINGLE;
  if (is_initialized) MPI_Query_thread(&provided);
  else check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "starting");
  if (provided != MPI_THREAD_MULTIPLE)
    fault("MPI does not provide MPI_THREAD_MULTIPLE (level {}): use an MPI that is built with thread support", provided);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  at_shutdown(finalize);
}

}  // namespace

void start_mpi(const World& world, std::chrono::milliseconds limit) {
  static std::once_flag once;
  std::call_once(once, [&] {
    const Watchdog watchdog(limit, fmt::format("rank {} waits for all {} ranks to start MPI", world.rank, world.size),
                            whole_group(world, "world"));
    initialize();
  });
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank != world.rank || size != world.size) {
    fault("MPI says rank {} of {}, the environment says rank {} of {}: use the mpirun of the MPI that ztoolkit is linked with",
          rank, size, world.rank, world.size);
  }
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<size_t>(length));
  return version.substr(0, version.find(','));
}

const std::vector<int>& nodes_of_world(const World& world, std::chrono::milliseconds limit) {
  start_mpi(world, limit);
  static const std::vector<int> nodes = [&] {
    const Watchdog watchdog(limit, fmt::format("rank {} waits for all {} ranks to make a mesh", world.rank, world.size),
                            whole_group(world, "world"));
    MPI_Comm node = MPI_COMM_NULL;
    int lowest = 0;
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
              "finding the ranks of this machine");
    check_mpi(MPI_Allreduce(&world.rank, &lowest, 1, MPI_INT, MPI_MIN, node), "finding the ranks of this machine");
    MPI_Comm_free(&node);
    std::vector<int> lowest_of_each(static_cast<size_t>(world.size));
    check_mpi(MPI_Allgather(&lowest, 1, MPI_INT, lowest_of_each.data(), 1, MPI_INT, MPI_COMM_WORLD),
              "telling the machines apart");
    return lowest_of_each;
  }();
  return nodes;
}

void give_up_mpi() {
  given_up = true;
}

void check_mpi(int code, const std::string& doing) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  give_up_mpi();
  fault("MPI failed {}: {}", doing, std::string(text, static_cast<size_t>(length)));
}

}  // namespace zt::comm
