// The channels of the nccl backend: shapes over the host, data over a fake NCCL that logs its calls.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "comm/support/ranks.h"
#include "core/group.h"
#include "nccl_fixture.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"
#include "zt/comm/channel.h"

namespace zt::comm {

namespace {

using namespace fake;

// One rank of a world of threads, with an NCCL of its own.
struct Device {
  explicit Device(const World& world)
      : host(test::world_communicator(world)),
        comm(make_nccl_backend(host, whole_group(world, "pp"), SumOrder::any, nccl.api, streams)) {
    log.take();
  }
  Lines calls() {
    auto lines = log.take();
    std::erase_if(lines, [](const std::string& line) { return line.starts_with("record") || line.starts_with("keep"); });
    return lines;
  }

  Log log;
  Nccl nccl{log};
  std::shared_ptr<Streams> streams = std::make_shared<Streams>(log);
  std::shared_ptr<Communicator> host;
  CheckedCommunicator comm;
};

TEST(NcclChannel, SendsDataOnItsStreamAndShapesOverTheHost) {
  test::spawn(3, [](const World& world) {
    Device device(world);
    if (world.rank == 1) return;
    const auto channel = device.comm.channel(0, 2, 2, "pp forward 0>2");
    EXPECT_EQ(device.calls(), Lines{fmt::format("init {} of 2", world.rank == 0 ? 0 : 1)});
    const auto matrix = at::arange(6, at::kFloat).reshape({2, 3}), ones = at::ones({4}, at::kByte);
    const std::vector<at::Tensor> sent{matrix.t(), at::Tensor(), at::ones({0, 2}), ones};
    for (int i = 0; i < 2; ++i) {
      if (world.rank == 0) {
        const Work work = channel->send(sent);
        EXPECT_EQ(device.calls(), (Lines{"block 7", "send 24 to 1", "block 7", "send 4 to 1"}));
        work.wait();
        EXPECT_EQ(device.calls(), (Lines{"block 0"})) << "the current stream waits, not the host";
        continue;
      }
      device.nccl.arriving[0] = {matrix.t().contiguous(), ones};
      const auto received = channel->recv();
      EXPECT_EQ(device.calls(), (Lines{"block 7", "recv 24 from 0", "block 7", "recv 4 from 0"}));
      received.work.wait();
      EXPECT_EQ(device.calls(), (Lines{"block 0"}));
      ASSERT_EQ(received.tensors.size(), 4U);
      EXPECT_TRUE(at::equal(received.tensors[0], matrix.t()));
      EXPECT_FALSE(received.tensors[1].defined());
      EXPECT_EQ(received.tensors[2].sizes(), (std::vector<int64_t>{0, 2}));
      EXPECT_TRUE(at::equal(received.tensors[3], ones));
    }
  });
}

TEST(NcclChannel, SendsMessagesWithoutTensors) {
  test::spawn(2, [](const World& world) {
    Device device(world);
    const auto channel = device.comm.channel(0, 1, 4, "pp forward 0>1");
    const auto ones = at::ones({3});
    const std::vector<std::vector<at::Tensor>> messages{{}, {ones}, {}, {}, {ones}};
    if (world.rank == 1) device.nccl.arriving[0] = {ones, ones};
    for (const auto& message : messages) {
      if (world.rank == 0) channel->send(message).wait();
      else EXPECT_EQ(channel->recv().tensors.size(), message.size());
    }
  });
}

TEST(NcclChannel, TheHostBoundsTheDepth) {
  test::spawn(2, [](const World& world) {
    Device device(world);
    device.comm.set_timeout(std::chrono::milliseconds(200));
    const auto channel = device.comm.channel(0, 1, 2, "pp forward 0>1");
    if (world.rank == 1) return;
    for (int i = 0; i < 2; ++i) channel->send({at::ones({3})});
    const auto said = test::message_of<Fault>([&] { channel->send({at::ones({3})}); });
    EXPECT_CONTAINS(said, "waits in operation 3, send of a message to rank 1 (world rank 1)");
  });
}

}  // namespace

}  // namespace zt::comm
