// Under mpirun, rank 1 does not make its second call. The other ranks must report that and exit by themselves with a nonzero
// status, without MPI_Finalize.
#include <fmt/format.h>
#include <unistd.h>

#include "comm/support/ranks.h"
#include "zt/base/error.h"

int main() {
  const zt::World world = zt::World::from_environment();
  const auto comm = zt::test::world_communicator(world);
  comm->barrier();
  if (world.rank == 1) {
    sleep(60);  // mpirun kills this rank when the others have exited
    return 0;
  }
  comm->set_timeout(std::chrono::milliseconds(500));
  try {
    auto tensor = at::ones({1000000});
    comm->all_reduce(tensor, tensor, zt::ReduceOp::sum, zt::Async::yes).wait();
  } catch (const zt::Fault& fault) {
    fmt::print("{}\n", fault.what());
    std::fflush(stdout);
    zt::run_shutdown_actions();
    return 1;
  }
  return 0;
}
