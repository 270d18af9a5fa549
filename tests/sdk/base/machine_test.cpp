#include "zt/base/machine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
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

// A folder with proc and sys of a machine of 8,000 KiB, of which 6,000 are available.
class Groups : public testing::Test {
 protected:
  Groups() { write("proc/meminfo", "MemTotal: 8000 kB\nMemFree: 1 kB\nMemAvailable: 6000 kB\n"); }
  ~Groups() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // A group of version 2, in KiB.
  void write_group(const std::string& group, const std::string& limit, int used, int cache) const {
    const std::string folder = "sys/fs/cgroup" + group;
    write(folder + "/memory.max", limit);
    write(folder + "/memory.current", std::to_string(used * 1024));
    write(folder + "/memory.stat", "anon 5\ninactive_file " + std::to_string(cache * 1024) + "\n");
  }
  void expect_kib(int64_t whole, int64_t free) const {
    const MachineMemory memory = machine_memory(root_.string());
    EXPECT_EQ(memory.whole, whole * 1024);
    EXPECT_EQ(memory.free, free * 1024);
  }

 private:
  const std::filesystem::path root_ = std::filesystem::temp_directory_path() / ("zt_groups_" + std::to_string(::getpid()));
};

TEST_F(Groups, AreNotNeeded) {
  expect_kib(8000, 6000);
  write("proc/self/cgroup", "0::/\n");
  expect_kib(8000, 6000);
}

TEST_F(Groups, OfAContainerAreItsRoot) {
  write("proc/self/cgroup", "0::/../somewhere/else\n");
  write_group("", std::to_string(4000 * 1024), 1500, 500);
  expect_kib(4000, 3000);
}

// A job's limit is that of its own group or of one above it.
TEST_F(Groups, OfAJobAreBoundedByThoseAbove) {
  write("proc/self/cgroup", "4:cpu:/other\n0::/slurm/job_7/step_0\n");
  write_group("/slurm/job_7/step_0", "max", 100, 0);
  write_group("/slurm/job_7", std::to_string(3000 * 1024), 1000, 200);
  write_group("/slurm", std::to_string(7000 * 1024), 6000, 100);
  expect_kib(3000, 1100);
}

TEST_F(Groups, OfVersion1) {
  write("proc/self/cgroup", "5:cpuset:/other\n4:cpu,memory:/job\n0::/\n");
  const std::string folder = "sys/fs/cgroup/memory/job";
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1024");
  write(folder + "/memory.limit_in_bytes", std::to_string(2000 * 1024));
  write(folder + "/memory.usage_in_bytes", std::to_string(700 * 1024));
  write(folder + "/memory.stat", "cache 5\ntotal_inactive_file 0\n");
  expect_kib(2000, 1300);
}

}  // namespace
}  // namespace zt
