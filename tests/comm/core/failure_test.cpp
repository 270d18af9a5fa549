// The errors when a rank does not make a call, fails, or passes different arguments.
#include <gtest/gtest.h>

#include "comm/support/ranks.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::test {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

TEST(Failure, TimeOutSaysWhoWaitsWhereAndForWhom) {
  std::string said;
  spawn(3, [&](const World& world) {
    const auto comm = world_communicator(world);
    comm->barrier();
    comm->set_timeout(milliseconds(200));
    if (world.rank == 1) return;
    auto tensor = at::ones({40000});
    const std::string text = message_of<Fault>([&] { comm->all_reduce(tensor, tensor); });
    if (world.rank == 0) said = text;
  });
  EXPECT_CONTAINS(said, "timed out after 0.2 s");
  EXPECT_CONTAINS(said, "rank 0 (world rank 0) of axis 'dp' waits in operation 1, all_reduce of 40000 float32 (sum)");
  EXPECT_CONTAINS(said, "for rank 1 (world rank 1)");
  EXPECT_CONTAINS(said, "set_timeout");
}

TEST(Failure, AsynchronousTimeOutSurfacesInWaitAndStays) {
  spawn(2, [&](const World& world) {
    const auto comm = world_communicator(world);
    comm->set_timeout(milliseconds(500));
    if (world.rank == 1) return;
    auto tensor = at::ones({10});
    const Work work = comm->all_reduce(tensor, tensor, ReduceOp::sum, Async::yes);
    const Work next = comm->all_reduce(tensor, tensor, ReduceOp::sum, Async::yes);
    EXPECT_THROW(work.wait(), Fault);
    EXPECT_THROW(work.synchronize(), Fault);
    EXPECT_TRUE(work.done());
    const auto start = steady_clock::now();
    EXPECT_THROW(next.wait(), Fault);
    EXPECT_THROW(comm->barrier(), Fault);
    EXPECT_THROW(comm->drain(), Fault);
    EXPECT_LT(steady_clock::now() - start, milliseconds(500)) << "a failed communicator does not wait for its timeout again";
  });
}

TEST(Failure, ARankThatThrowsEndsTheWaitOfTheOthers) {
  const auto start = steady_clock::now();
  const auto run = [] {
    spawn(4, [](const World& world) {
      const auto comm = world_communicator(world);
      if (world.rank == 2) throw std::runtime_error("rank 2 broke");
      // Rank 3 waits for its communication thread, the others wait inside the call.
      comm->all_reduce(at::ones({1}), at::ones({1}), ReduceOp::sum, world.rank == 3 ? Async::yes : Async::no).wait();
    });
  };
  EXPECT_THROW(
      {
        try {
          run();
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "rank 2 broke");
          throw;
        }
      },
      std::runtime_error);
  EXPECT_LT(steady_clock::now() - start, seconds(5));
}

TEST(Failure, OtherCountsThanThePeersAreNoticed) {
  const auto run = [] {
    spawn(2, [](const World& world) {
      const auto comm = world_communicator(world);
      auto tensor = at::ones({world.rank == 0 ? 10 : 12});
      comm->all_reduce(tensor, tensor);
    });
  };
  // The rank that notices first throws the Fault, and the other rank is aborted.
  const std::string said = message_of<Fault>(run);
  EXPECT_CONTAINS(said, "all_reduce of 1");
  EXPECT_CONTAINS(said, "where rank");
  EXPECT_CONTAINS(said, "operation 0 of rank");
  EXPECT_CONTAINS(said, "all ranks");
}

TEST(Failure, ListsOfOtherLengthsAreNoticed) {
  const auto run = [] {
    spawn(2, [](const World& world) {
      const auto comm = world_communicator(world);
      const int64_t first = world.rank == 0 ? 8 : 4;
      comm->all_reduce(std::vector<at::Tensor>{at::ones({first}), at::ones({16 - first})});
    });
  };
  EXPECT_CONTAINS(message_of<Fault>(run), "all_reduce of a list of 2 tensors of 4 + 12 float32 (sum)");
}

TEST(Failure, AListWhereTheOthersHaveOneTensorIsShown) {
  const auto run = [] {
    spawn(2, [](const World& world) {
      const auto comm = world_communicator(world);
      if (world.rank == 0) comm->all_reduce(at::ones({8}), at::ones({8}));
      else comm->all_reduce(std::vector<at::Tensor>{at::ones({4}), at::ones({4})});
    });
  };
  EXPECT_CONTAINS(
      message_of<Fault>(run),
      "called all_reduce of a list of 2 tensors of 4 + 4 float32 (sum) where rank 0 (world rank 0) called all_reduce of "
      "8 float32 (sum)");
}

TEST(Failure, AMessageIsNoCollective) {
  const auto run = [] {
    spawn(2, [](const World& world) {
      const auto comm = world_communicator(world);
      comm->set_timeout(milliseconds(500));
      const auto tensor = at::ones({8});
      if (world.rank == 0) comm->recv(tensor, 1);
      else comm->all_reduce(tensor, tensor);
    });
  };
  EXPECT_CONTAINS(message_of<Fault>(run), "8 float32");
}

TEST(Failure, AnUnfinishedCommunicatorGoesAwayInTime) {
  const auto start = steady_clock::now();
  spawn(2, [](const World& world) {
    const auto comm = world_communicator(world);
    auto tensor = at::ones({10});
    if (world.rank == 0) comm->all_reduce(tensor, tensor, ReduceOp::sum, Async::yes);
  });
  EXPECT_LT(steady_clock::now() - start, seconds(5));
}

}  // namespace

}  // namespace zt::test
