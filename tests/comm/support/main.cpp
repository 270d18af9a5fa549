// As gtest_main, and ends MPI in order where it was started.
#include <gtest/gtest.h>
#include <malloc.h>

#include "zt/process/world.h"

int main(int argc, char** argv) {
  // Fresh pages for every large tensor would be most of the time, here as in the host.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  // After a failure other ranks may wait for ever in MPI_Finalize: leave without, as the host does.
  if (status == 0) zt::run_shutdown_actions();
  return status;
}
