// As gtest_main, and finalizes MPI if it was started.
#include <gtest/gtest.h>
#include <malloc.h>

#include "zt/process/world.h"

int main(int argc, char** argv) {
  // Otherwise fresh pages for every large tensor would take most of the time. The host has the same settings.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  // After a failure MPI_Finalize may wait for ever, so it is skipped, as in the host.
  if (status == 0) zt::run_shutdown_actions();
  return status;
}
