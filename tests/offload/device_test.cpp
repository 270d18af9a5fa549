// Copies between the test device, host memory and files.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <thread>

#include "device/copy_stream.h"
#include "device/tiers.h"
#include "support/test_device/test_device.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/io/posix_fs.h"

namespace zt::offload {
namespace {

using namespace std::chrono_literals;

at::Tensor on_device(const at::Tensor& values) {
  return values.to(test::test_device());
}

class DeviceTest : public testing::Test {
 protected:
  void TearDown() override { test::set_copy_delay(0us); }

  // Homes of `host` and `files` bytes, besides what is taken.
  static std::shared_ptr<Homes> homes(int64_t host, int64_t files) {
    static const std::vector<at::Tensor> no_slots;
    DiskOptions options;
    options.folder = {testing::TempDir()};
    options.files = std::make_shared<io::PosixFs>(World{});
    return make_tiers(options, true, {.host = host, .files = files, .slots = no_slots, .device = test::test_device()});
  }

  const at::Tensor first_ = at::arange(8192).to(at::kByte), second_ = first_.flip(0).contiguous();
};

TEST_F(DeviceTest, IsNoMemoryOfTheHost) {
  const at::Tensor there = on_device(first_);
  EXPECT_FALSE(there.is_cpu());
  EXPECT_TRUE(is_for_host(there));
  EXPECT_THROW(there.add(first_), c10::Error);
}

TEST_F(DeviceTest, BringsBackWhatWasTakenThere) {
  const auto tiers = homes(16384, 16384);
  for (const Tier tier : {Tier::host, Tier::file}) {
    test::set_copy_delay(3ms);
    const at::Tensor out = on_device(first_), more = on_device(second_);
    const Work one = tiers->write(tier, 0, out), two = tiers->write(tier, 8192, more);
    one.wait(), two.wait();
    out.zero_(), more.zero_();
    const Work back = tiers->read(tier, 8192, out), rest = tiers->read(tier, 0, more);
    back.wait(), rest.wait();
    EXPECT_TRUE(out.cpu().equal(second_)) << word_of(tier);
    EXPECT_TRUE(more.cpu().equal(first_)) << word_of(tier);
  }
}

TEST_F(DeviceTest, CopiesDoNotHoldTheCaller) {
  const auto tiers = homes(8192, 8192);
  const at::Tensor out = on_device(first_);
  for (const Tier tier : {Tier::host, Tier::file}) {
    test::set_copy_delay(200ms);
    const auto begin = std::chrono::steady_clock::now();
    const Work work = tiers->write(tier, 0, out);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 100ms) << word_of(tier);
    EXPECT_FALSE(work.done());
    work.synchronize();
    EXPECT_TRUE(work.done());
  }
}

// A copy begins after what the current stream has to do, and memory that is freed meanwhile stays until it is over.
TEST_F(DeviceTest, CopiesWaitForTheCurrentStream) {
  const auto tiers = homes(8192, 0);
  const at::Device device = test::test_device();
  const c10::impl::VirtualGuardImpl guard(device.type());
  const at::Tensor pinned = pinned_bytes(8192, device);
  pinned.copy_(first_);
  test::set_copy_delay(50ms);
  Work work;
  {
    at::Tensor source = on_device(second_);
    const c10::StreamGuard compute(guard.getStreamFromGlobalPool(device));
    source.copy_(pinned, /*non_blocking=*/true);
    work = tiers->write(Tier::host, 0, source);
  }
  const at::Tensor back = on_device(second_);
  work.wait();
  tiers->read(Tier::host, 0, back).wait();
  EXPECT_TRUE(back.cpu().equal(first_));
}

TEST_F(DeviceTest, ASaveKeepsWhatIsOverwritten) {
  const auto tiers = homes(8192, 8192);
  for (const Tier tier : {Tier::host, Tier::file}) {
    const at::Tensor out = on_device(first_);
    tiers->write(tier, 0, out).synchronize();
    auto kept = tiers->keep(tier, 0, 8192);
    const at::Tensor saved = aligned_bytes(8192, at::kCPU);
    out.copy_(second_);
    Work later;
    std::thread training([&] { (later = tiers->write(tier, 0, out)).synchronize(); });
    std::this_thread::sleep_for(20ms);
    kept->read(0, saved).synchronize();
    EXPECT_TRUE(saved.equal(first_)) << word_of(tier);
    kept->release(0, 8192);
    training.join();
    out.zero_();
    tiers->read(tier, 0, out).synchronize();
    EXPECT_TRUE(out.cpu().equal(second_)) << word_of(tier);
  }
}

// Code of the host sees what a copy brings once it has waited for it.
TEST_F(DeviceTest, IsUsedInPlaceAfterItsCopies) {
  const auto tiers = homes(8192, 8192);
  const at::Tensor out = on_device(first_);
  test::set_copy_delay(50ms);
  const Work work = tiers->write(Tier::host, 0, out);
  const HostBytes lying = tiers->in_place(Tier::host, 0, 8192);
  EXPECT_TRUE(lying.bytes.is_cpu());
  EXPECT_FALSE(lying.arrived.done());
  lying.arrived.wait();
  EXPECT_TRUE(lying.bytes.equal(first_));
  lying.bytes.copy_(second_);
  tiers->read(Tier::host, 0, out).wait();
  EXPECT_TRUE(out.cpu().equal(second_));
  EXPECT_THROW(tiers->in_place(Tier::file, 0, 8192), Fault);
}

TEST_F(DeviceTest, TakesMoreThanWasReserved) {
  const auto tiers = homes(0, 0);
  for (const Tier tier : {Tier::host, Tier::file}) {
    const int64_t a = tiers->take(tier, 8192), b = tiers->take(tier, int64_t{40} << 20), c = tiers->take(tier, 8192);
    const at::Tensor out = on_device(first_), more = on_device(second_);
    tiers->write(tier, a, out).wait();
    tiers->write(tier, c, more).wait();
    tiers->give_back(tier, b, int64_t{40} << 20);
    EXPECT_EQ(tiers->take(tier, int64_t{40} << 20), b) << word_of(tier);
    tiers->read(tier, a, more).wait();
    EXPECT_TRUE(more.cpu().equal(first_)) << word_of(tier);
  }
}

TEST_F(DeviceTest, CopiesPinnedMemoryWithoutAWait) {
  const int64_t pinned = test::copied_bytes().pinned, device = test::device_bytes(), host = test::pinned_bytes();
  {
    const auto tiers = homes(8192, 0);
    EXPECT_EQ(test::pinned_bytes() - host, 8192);
    const at::Tensor out = on_device(first_);
    EXPECT_EQ(test::device_bytes() - device, 8192);
    tiers->write(Tier::host, 0, out).synchronize();
    EXPECT_EQ(test::copied_bytes().pinned - pinned, 8192);
  }
  EXPECT_EQ(test::pinned_bytes(), host);
  EXPECT_EQ(test::device_bytes(), device);
}

}  // namespace
}  // namespace zt::offload
