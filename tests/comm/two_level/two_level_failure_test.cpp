// Failures on several nodes: a rank makes no call, calls something else, or ends. And layouts that are refused.
#include <gtest/gtest.h>

#include "core/group.h"
#include "mesh/make_backend.h"
#include "support/message.h"
#include "support/spawn.h"
#include "two_levels.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// Once while calls are compared, and once when they no longer are.
TEST(TwoLevel, ARankThatDoesNotComeIsNamed) {
  for (const uint64_t calls : {uint64_t{1}, kCheckedFirst}) {
    std::vector<std::string> said(4);
    const auto start = steady_clock::now();
    test::spawn(4, [&](const World& world) {
      const auto comm = two_levels(world, 2);
      for (uint64_t i = 0; i < calls; ++i) comm->barrier();
      comm->set_timeout(milliseconds(300));
      if (world.rank == 3) return;
      const auto tensor = at::ones({40000});
      said[static_cast<size_t>(world.rank)] = test::message_of<Fault>([&] { comm->all_reduce(tensor, tensor); });
      EXPECT_THROW(comm->barrier(), Fault);
    });
    EXPECT_LT(steady_clock::now() - start, seconds(5));
    for (int r = 0; r < 3; ++r) {
      EXPECT_CONTAINS(said[static_cast<size_t>(r)], "all_reduce of 40000 float32 (sum) on axis 'dp' failed");
      EXPECT_CONTAINS(said[static_cast<size_t>(r)], "timed out after 0.3 s");
    }
    EXPECT_CONTAINS(said[2], "(world rank 3)");
    EXPECT_CONTAINS(said[2], calls == 1 ? "of axis 'dp/flat'" : "of axis 'dp/inside'");
    EXPECT_CONTAINS(said[1], calls == 1 ? "of axis 'dp/flat'" : "of axis 'dp/across'");
  }
}

TEST(TwoLevel, DifferentCallsAreToldOnAllRanks) {
  test::spawn(4, [](const World& world) {
    const auto comm = two_levels(world, 2);
    const auto long_one = at::ones({4000}), short_one = at::ones({4});
    const std::string said = test::message_of<Fault>([&] {
      if (world.rank == 1) comm->broadcast(short_one, 0);
      else comm->all_reduce(long_one, long_one);
    });
    EXPECT_CONTAINS(said, "rank 1 (world rank 1) called broadcast of 4 float32");
    EXPECT_CONTAINS(said, "all_reduce of 4000 float32 (sum)");
  });
}

// The levels do not know that the communicator is closed. Waiting for them would take their timeout, a minute.
TEST(TwoLevel, AnUnfinishedCommunicatorGoesAwayInTime) {
  const auto start = steady_clock::now();
  test::spawn(4, [](const World& world) {
    const auto comm = two_levels(world, 2);
    const auto tensor = at::ones({5000});
    if (world.rank == 0) comm->all_reduce(tensor, tensor, ReduceOp::sum, Async::yes);
  });
  EXPECT_LT(steady_clock::now() - start, seconds(10));
}

TEST(TwoLevel, RefusesWhatWouldGiveOtherBits) {
  test::spawn(6, [](const World& world) {
    EXPECT_SAYS("backend 'two_level' does not suit axis 'dp': every node has 3 ranks, which is no power of two",
                two_levels(world, 3));
    EXPECT_SAYS("all on one node", two_levels(world, 6));
    EXPECT_SAYS("backend 'shm' needs all ranks of axis 'dp' on one machine",
                make_communicator(world, "shm", whole_group(world, "dp"), {.ranks_per_node = 3}));
  });
}

}  // namespace

}  // namespace zt::comm
