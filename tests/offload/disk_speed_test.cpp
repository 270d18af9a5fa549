// Tests the measurement of disks on a file system in memory: it reads what it wrote, and says when a disk returns other bytes.
#include "files/disk_speed.h"

#include <gtest/gtest.h>

#include "io/faults/fault_fs.h"
#include "support/message.h"

namespace zt::offload {

namespace {

constexpr int64_t kPage = io::kSwapAlignment;

DiskTest small_test() {
  return {.folder = {"/a", "/b"}, .size = 20 * kPage, .block = kPage, .depth = 3, .seconds = 0.001};
}

TEST(DiskSpeed, MeasuresAllRates) {
  io::FaultFs files;
  files.make_folder("/a");
  files.make_folder("/b");
  const DiskSpeed speed = measure_disk(files, small_test());
  for (const double rate : {speed.read, speed.write, speed.mixed}) EXPECT_GT(rate, 0);
  EXPECT_TRUE(speed.is_direct);
}

// Of a file of one block, four per operation under way are moved all the same.
TEST(DiskSpeed, TakesOddSizes) {
  io::FaultFs files({.capacity = 12 * kPage, .alignment = 1});
  files.make_folder("/a");
  const DiskSpeed speed = measure_disk(files, {.folder = {"/a"}, .size = 1, .block = kPage, .depth = 3, .seconds = 0.001});
  EXPECT_GT(speed.mixed, 0);
  EXPECT_FALSE(speed.is_direct);
}

TEST(DiskSpeed, FindsWrongBytes) {
  io::FaultFs files;
  files.make_folder("/a");
  files.make_folder("/b");
  // Flips a bit in each of many operations: some of them lie in the numbers of blocks.
  files.plan({.what = io::Trouble::What::bit_flip, .call = 60, .calls = int64_t{1} << 40});
  DiskTest test = small_test();
  test.seconds = 1;
  const std::string said = test::message_of<Fault>([&] { measure_disk(files, test); });
  EXPECT_CONTAINS(said, "the disk returned other bytes than were written, in block ");
}

TEST(DiskSpeed, NamesTheFolderOfAnError) {
  io::FaultFs files;
  files.make_folder("/a");
  EXPECT_CONTAINS(test::message_of<Fault>([&] { measure_disk(files, small_test()); }), "cannot create '/b/ztoolkit-swap");
}

}  // namespace

}  // namespace zt::offload
