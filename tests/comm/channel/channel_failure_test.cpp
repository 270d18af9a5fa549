// Channels whose other end is late, gone or ended; and the channels of the backends that the tests on ranks do not reach.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/support/ranks.h"
#include "comm/two_level/two_levels.h"
#include "core/group.h"
#include "mesh/make_backend.h"
#include "mesh/mesh.h"
#include "null/null_backend.h"
#include "recorder/report.h"
#include "recorder/verdict.h"
#include "shm/shared_channel.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

TEST(ChannelFailure, ATimeOutSaysWhichEndWaitsForWhichMessage) {
  test::spawn(2, [](const World& world) {
    const auto comm = test::world_communicator(world);
    comm->set_timeout(milliseconds(200));
    const auto channel = comm->channel(0, 1, 2, "pp forward 0>1"), back = comm->channel(1, 0, 1, "pp backward 1>0");
    std::string said;
    if (world.rank == 0) {
      for (int i = 0; i < 2; ++i) channel->send({at::ones({3})});
      said = test::message_of<Fault>([&] { channel->send({at::ones({3})}); });
      EXPECT_CONTAINS(said, "timed out after 0.2 s: rank 0 (world rank 0) of axis 'pp forward 0>1' waits in operation 2");
      EXPECT_CONTAINS(said, "send of a message to rank 1 (world rank 1)");
      EXPECT_EQ(test::message_of<Fault>([&] { channel->send({}); }), said) << "a failed channel fails at once";
    } else {
      said = test::message_of<Fault>([&] { back->send({}).wait(), back->send({}).wait(); });
      EXPECT_CONTAINS(said, "of axis 'pp backward 1>0' waits in operation 1, send of a message to rank 0 (world rank 0)");
    }
  });
}

TEST(ChannelFailure, TheVerdictSaysWhoWaitsForWhom) {
  const auto record = [](CallKind kind, int peer, uint64_t turn, CallStage stage) {
    return CallRecord{.number = turn, .turn = turn, .call = {.kind = kind, .peer = peer, .tensors = 0}, .stage = stage};
  };
  std::vector<Flight> flights(2);
  for (int r = 0; r < 2; ++r) flights[static_cast<size_t>(r)].rank = r;
  const Track forward{.axis = "pp forward 0>1", .backend = "shm", .copy = 0, .ranks = {0, 1}, .records = {}};
  flights[0].tracks = {forward};
  flights[1].tracks = {forward};
  flights[0].tracks[0].records = {record(CallKind::send, 1, 0, CallStage::done)};
  flights[1].tracks[0].records = {record(CallKind::recv, 0, 0, CallStage::done),
                                  record(CallKind::recv, 0, 1, CallStage::running)};
  EXPECT_CONTAINS(judge(flights).text(),
                  "rank 1 waits in recv of a message from rank 0, message 1 on axis pp forward 0>1, for 0.0 s; rank 0 has not "
                  "called it");
}

TEST(ChannelFailure, ARankThatFailsEndsTheWaitOfTheOther) {
  const auto start = steady_clock::now();
  const auto run = [] {
    test::spawn(2, [](const World& world) {
      const auto channel = test::world_communicator(world)->channel(0, 1, 1, "x");
      if (world.rank == 0) throw std::runtime_error("rank 0 broke");
      channel->recv();
    });
  };
  EXPECT_THROW(run(), std::runtime_error);
  EXPECT_LT(steady_clock::now() - start, seconds(5));
}

TEST(ChannelFailure, AScriptThatEndedEndsTheWait) {
  const auto start = steady_clock::now();
  std::atomic<bool> is_over{false};
  test::spawn(2, [&](const World& world) {
    const auto comm = test::world_communicator(world);
    auto channel = comm->channel(0, 1, 1, "x");
    if (world.rank == 1) {
      channel->recv();
      channel.reset();
      note_script_end(world);
      while (!is_over) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    for (int i = 0; i < 2; ++i) channel->send({at::ones({2})});  // the second is never taken
    const std::string said = test::message_of<Fault>([&] { channel->send({at::ones({2})}); });
    EXPECT_CONTAINS(said,
                    "waits in operation 2, send of a message to rank 1 (world rank 1), for rank 1 (world rank 1), whose script");
    is_over = true;
  });
  EXPECT_LT(steady_clock::now() - start, seconds(5));
}

// Messages name an end by its rank in the group that has made the channel: the stage of a pipeline.
TEST(ChannelFailure, TheEndsKeepTheirRanks) {
  std::atomic<bool> is_over{false};
  test::spawn(3, [&](const World& world) {
    const auto comm = test::world_communicator(world);
    if (world.rank == 0) return;
    auto channel = comm->channel(1, 2, 1, "x");
    if (world.rank == 1) {
      channel.reset();
      note_script_end(world);
      while (!is_over) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    const std::string said = test::message_of<Fault>([&] { channel->recv(); });
    EXPECT_CONTAINS(said, "rank 2 (world rank 2) of axis 'x' waits in operation 0, recv of a message from rank 1 (world rank 1)");
    is_over = true;
  });
}

TEST(ChannelFailure, APeerThatWasKilledIsNoticedAtOnce) {
  const auto memory = std::make_shared<SharedMemory>(SharedMemory::create(shared_channel_bytes(1), Pages::on_demand));
  const auto end_of = [&](int rank) {
    const Group pair{"x", rank, {0, 1}};
    return open_shared_channel(1, pair, memory, {"shm", [] {}, seconds(20)}, Ring::make_private(pair, "shm"));
  };
  const pid_t child = fork();
  if (child == 0) {
    end_of(1)->recv();
    _exit(0);
  }
  const auto channel = end_of(0);
  const auto begin = steady_clock::now();
  for (int i = 0; i < 2; ++i) channel->send({at::ones({2})});
  EXPECT_CONTAINS(test::message_of<Fault>([&] { channel->send({at::ones({2})}); }), "the process of rank 1 (world rank 1)");
  EXPECT_LT(steady_clock::now() - begin, seconds(5));
  waitpid(child, nullptr, 0);
}

TEST(ChannelFailure, AnEndedProcessLeavesItsMessages) {
  const auto memory = std::make_shared<SharedMemory>(SharedMemory::create(shared_channel_bytes(2), Pages::on_demand));
  const auto end_of = [&](int rank) {
    const Group pair{"x", rank, {0, 1}};
    return open_shared_channel(2, pair, memory, {"shm", [] {}, seconds(20)}, Ring::make_private(pair, "shm"));
  };
  const pid_t child = fork();
  if (child == 0) {
    {
      const auto channel = end_of(0);
      channel->send({at::full({3}, 1)});
      channel->send({at::full({200000}, 2)});  // in memory that the receiver has not mapped
    }
    _exit(0);
  }
  const auto channel = end_of(1);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(at::equal(channel->recv().tensors.at(0), at::full({3}, 1)));
  EXPECT_TRUE(at::equal(channel->recv().tensors.at(0), at::full({200000}, 2)));
  EXPECT_THROW(channel->recv(), Fault);
}

TEST(ChannelBackends, TwoLevelsSendInsideAndAcross) {
  test::spawn(4, [](const World& world) {
    const auto comm = two_levels(world, 2);
    const auto inside = world.rank >= 2 ? comm->channel(3, 2, 1, "inside") : nullptr;
    const auto across = world.rank == 1 || world.rank == 2 ? comm->channel(1, 2, 1, "across") : nullptr;
    if (world.rank == 3) inside->send({at::ones({2})}).wait();
    if (world.rank == 1) across->send({at::ones({3})}).wait();
    if (world.rank != 2) return;
    EXPECT_EQ(across->recv().tensors.at(0).numel(), 3);
    EXPECT_EQ(inside->recv().tensors.at(0).numel(), 2);
  });
}

TEST(ChannelBackends, NullSendsAnythingAndReceivesNothing) {
  const auto comm = make_communicator(World{.rank = 1, .size = 4, .threads = nullptr}, "null", {"pp", 1, {0, 1, 2, 3}});
  const auto to = comm->channel(1, 2, 1, "forward"), from = comm->channel(0, 1, 1, "forward");
  for (int i = 0; i < 5; ++i) to->send({at::ones({2}), at::Tensor()}).wait();
  EXPECT_TRUE(from->recv().tensors.empty());
  EXPECT_SAYS("only rank 0 (world rank 0) may send", from->send({}));
}

TEST(ChannelBackends, AMeshKeepsItsChannels) {
  test::spawn(4, [](const World& world) {
    const auto mesh = make_mesh(world, {.axes = {{"pp", 2}, {"dp", 2}}});
    const auto forward = mesh->channel({"pp"}, 0, 1, "forward", 2), backward = mesh->channel({"pp"}, 1, 0, "backward", 2);
    EXPECT_EQ(mesh->channel({"pp"}, 0, 1, "forward", 2), forward);
    EXPECT_NE(mesh->channel({"pp"}, 0, 1, "forward", 3), forward);
    const bool is_first = mesh->coord()["pp"] == 0;
    (is_first ? forward : backward)->send({at::full({1}, world.rank)}).wait();
    const auto got = (is_first ? backward : forward)->recv();
    EXPECT_EQ(got.tensors.at(0).item<float>(), static_cast<float>((world.rank + 2) % 4));
  });
}

}  // namespace

}  // namespace zt::comm
