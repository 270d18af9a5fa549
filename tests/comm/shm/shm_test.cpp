// Tests specific to shared memory: different calls, no memory, a process that is gone, signals.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "comm/support/ranks.h"
#include "mesh/make_backend.h"
#include "queue/signal.h"
#include "shm/share.h"
#include "shm/shared_memory.h"
#include "shm/windows.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

std::shared_ptr<Communicator> shm_communicator(const World& world) {
  return make_communicator(world, "shm", {"dp", world.rank, world.size == 2 ? std::vector{0, 1} : std::vector{0, 1, 2}});
}

TEST(SharedMemory, DifferentCallsAreToldAtOnceOnAllRanks) {
  test::spawn(2, [](const World& world) {
    const auto comm = shm_communicator(world);
    const auto in = at::ones({512}), out = at::ones({1024});
    const std::string said = test::message_of<Fault>([&] {
      if (world.rank == 0) comm->all_reduce(out, out);
      else comm->all_gather(out, in);
    });
    EXPECT_CONTAINS(said, "called all_gather of 512 float32");
    EXPECT_CONTAINS(said, "called all_reduce of 1024 float32 (sum)");
    EXPECT_CONTAINS(said, "operation 0 of rank");
  });
}

TEST(SharedMemory, AllToAllSplitsThatDoNotBelongTogether) {
  test::spawn(2, [](const World& world) {
    const auto comm = shm_communicator(world);
    // Rank 1 gives three elements to rank 0, and rank 0 expects two.
    const std::vector<int64_t> in_splits = world.rank == 0 ? std::vector<int64_t>{2, 2} : std::vector<int64_t>{3, 1};
    const auto in = at::ones({4}), out = at::ones({world.rank == 0 ? 4 : 3});
    const std::string said = test::message_of<Fault>([&] { comm->all_to_all(out, in, {2, world.rank == 0 ? 2 : 1}, in_splits); });
    EXPECT_CONTAINS(said, "rank 1 (world rank 1) gives 12 bytes where rank 0 (world rank 0) expects 8");
  });
}

TEST(SharedMemory, NoMemorySaysHowMuchWasWanted) {
  test::spawn(2, [](const World& world) {
    const auto comm = shm_communicator(world);
    const std::string said = test::message_of<Fault>([&] { comm->allocate({int64_t{1} << 46}, at::kByte); });
    EXPECT_CONTAINS(said, "cannot get 64.0 TiB of shared memory");
    EXPECT_CONTAINS(said, "left");
    comm->barrier();  // nothing was changed: the communicator stays usable
  });
}

TEST(SharedMemory, ALimitOfTheProcessIsAnErrorToo) {
  // In a child process, because the limit cannot be undone.
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string said = test::message_of<Fault>([] { SharedMemory::create(4 << 20, Pages::now); });
    _exit(said.find("cannot get 4.0 MiB of shared memory") == std::string::npos);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(SharedMemory, IsSharedThroughItsAddressUntilHidden) {
  auto made = SharedMemory::create(10000, Pages::now);
  EXPECT_EQ(made.bytes(), 12288U);
  const auto opened = SharedMemory::open(made.address());
  made.data()[9999] = 7;
  EXPECT_EQ(opened.data()[9999], 7);
  const MemoryAddress address = made.address();
  made.hide();
  EXPECT_CONTAINS(test::message_of<Fault>([&] { SharedMemory::open(address); }), "cannot open the shared memory of process");
  EXPECT_EQ(opened.data()[9999], 7);
  made.discard();
  EXPECT_EQ(opened.data()[9999], 0);
}

TEST(SharedMemory, OneMemoryIsInWindowsOfTwoTeams) {
  std::array<std::shared_ptr<SharedMemory>, 2> of_team;
  for (auto& memory : of_team)
    memory = std::make_shared<SharedMemory>(SharedMemory::create(Team::bytes_for(2), Pages::on_demand));
  test::spawn(2, [&](const World& world) {
    WaitPolicy policy(WaitPolicy::Style::caller, std::chrono::seconds(20), [] {});
    Team first_team({"dp", world.rank, {0, 1}}, of_team[0], policy),
        second_team({"replica", world.rank, {0, 1}}, of_team[1], policy);
    Windows first(first_team), second(second_team);
    const auto earlier = second.create(10);  // the same memory has different numbers in the two
    const auto own = first.create(10000);
    second.adopt(own);
    own->hide();
    EXPECT_EQ(first.place_of(own->data() + 9999).window, 0);
    EXPECT_EQ(second.place_of(own->data() + 9999).window, 1);
    own->data()[9999] = static_cast<char>(world.rank + 1);
    first_team.enter();
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(*first.address(rank, {0, 9999}), rank + 1);
      EXPECT_EQ(*second.address(rank, {1, 9999}), rank + 1);
    }
    first_team.enter();
    // A rank whose memory cannot be opened any more makes the call fail on all ranks, and the window is not added.
    EXPECT_CONTAINS(test::message_of<Fault>([&] { second.adopt(world.rank == 0 ? own : earlier); }), "shared memory");
    second.adopt(earlier);
  });
}

TEST(SharedMemory, AWaitEndsWhenTheProcessOfTheOtherIsGone) {
  const auto memory = std::make_shared<SharedMemory>(SharedMemory::create(Team::bytes_for(2), Pages::on_demand));
  const auto team_of = [&](int rank, WaitPolicy& policy) {
    return std::make_unique<Team>(Group{"dp", rank, {0, 1}}, memory, policy);
  };
  WaitPolicy policy(WaitPolicy::Style::caller, std::chrono::seconds(20), [] {});
  const pid_t child = fork();
  if (child == 0) {
    const auto team = team_of(1, policy);
    _exit(0);  // after the barrier of the constructor, before the next operation
  }
  const auto team = team_of(0, policy);
  const auto begin = std::chrono::steady_clock::now();
  team->my_notice().call = {};
  EXPECT_CONTAINS(test::message_of<Fault>([&] { team->enter(); }), "the process of rank 1 (world rank 1)");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  waitpid(child, nullptr, 0);
}

TEST(SharedMemory, SignalsWakeSleepersAndWrapAround) {
  Signal signal;
  signal.raise(UINT32_MAX);
  EXPECT_TRUE(signal.has_reached(UINT32_MAX - 5));
  EXPECT_FALSE(signal.has_reached(1));
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    signal.raise(1);
  });
  int ticks = 0;
  await(signal, 1, Spin::briefly, [&] { ++ticks; });
  EXPECT_TRUE(signal.has_reached(1));
  EXPECT_GE(ticks, 1);  // the wait slept, and called tick
  other.join();
}

}  // namespace

}  // namespace zt::comm
