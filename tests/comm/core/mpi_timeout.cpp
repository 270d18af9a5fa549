// Under mpirun, rank 1 never comes: the others have to say so and leave by themselves, past MPI_Finalize, with a status.
#include <fmt/format.h>
#include <unistd.h>

#include "comm/support/ranks.h"
#include "zt/base/error.h"

int main() {
  const zt::World world = zt::World::from_environment();
  const auto comm = zt::test::world_communicator(world);
  comm->barrier();
  if (world.rank == 1) {
    sleep(60);  // mpirun ends it when the others have left
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
