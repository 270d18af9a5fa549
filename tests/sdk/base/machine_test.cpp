#include "zt/base/machine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

namespace zt {
namespace {

TEST(Environment, IsThatOfTheStart) {
  const std::string path = std::getenv("PATH");
  EXPECT_EQ(environment("PATH"), path);
  EXPECT_EQ(environment("ZT_NEVER_SET"), nullptr);
  setenv("PATH", "/nowhere", 1);
  setenv("ZT_NEVER_SET", "1", 1);
  EXPECT_EQ(environment("PATH"), path);
  EXPECT_EQ(environment("ZT_NEVER_SET"), nullptr);
}

// MPI sets variables while threads of this process read theirs.
TEST(Environment, CanBeReadWhileAnotherThreadSetsVariables) {
  std::thread setter([] {
    for (int i = 0; i < 20000; ++i) setenv(("ZT_SET_" + std::to_string(i)).c_str(), "1", 1);
  });
  for (int i = 0; i < 20000; ++i) ASSERT_EQ(environment("ZT_NEVER_SET"), nullptr);
  setter.join();
}

}  // namespace
}  // namespace zt
