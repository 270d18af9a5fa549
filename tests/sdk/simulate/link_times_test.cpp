// The seconds of transfers inside and between machines.
#include "simulate/link_times.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/message.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

constexpr int64_t kBytes = 1'000'000'000;
constexpr double kGiga = 1e9;

// 8 ranks and 8 cards of 50 GB/s per machine, 450 GB/s inside.
Hardware machine() {
  Hardware hardware;
  hardware.inside = {1e-6, 450 * kGiga};
  hardware.across = {10e-6, 50 * kGiga};
  hardware.ranks_per_machine = 8;
  hardware.cards_per_machine = 8;
  return hardware;
}

void expect_seconds(const LinkTime& time, double seconds) {
  EXPECT_NEAR(time.seconds, seconds, 1e-6 * seconds);
}

TEST(LinkTimes, ARingEntersAMachineByAllItsCards) {
  const MeshShape mesh({{"dp", 64}}, 64);
  Hardware with = machine();
  with.across.latency = with.inside.latency = 0;
  expect_seconds(LinkTimes(mesh, with).collective(0, {"dp"}, kBytes, false), 1.0 / 400);
  with.cards_per_machine = 1;
  expect_seconds(LinkTimes(mesh, with).collective(0, {"dp"}, kBytes, false), 1.0 / 50);
  with.cards_per_machine = 16;
  expect_seconds(LinkTimes(mesh, with).collective(0, {"dp"}, kBytes, false), 1.0 / 400);  // a rank drives one card
}

TEST(LinkTimes, GroupsWithOneRankPerMachineShareItsCards) {
  const MeshShape mesh({{"dp", 8}, {"tp", 8}}, 64);
  Hardware with = machine();
  with.across.latency = with.inside.latency = 0;
  expect_seconds(LinkTimes(mesh, with).collective(0, {"dp"}, kBytes, false), 1.0 / 50);
  expect_seconds(LinkTimes(mesh, with).collective(0, {"tp"}, kBytes, false), 1.0 / 450);
  with.cards_per_machine = 2;
  expect_seconds(LinkTimes(mesh, with).collective(0, {"dp"}, kBytes, false), 4.0 / 50);
  with.cards_per_machine = 0;
  expect_seconds(LinkTimes(mesh, with).collective(0, {"dp"}, kBytes, false), 1.0 / 50);  // one card per rank
}

TEST(LinkTimes, RanksPerMachineMatter) {
  const MeshShape mesh({{"dp", 8}}, 8);
  Hardware with = machine();
  const double inside = LinkTimes(mesh, with).collective(0, {"dp"}, kBytes, false).seconds;
  with.ranks_per_machine = 1;
  EXPECT_GT(LinkTimes(mesh, with).collective(0, {"dp"}, kBytes, false).seconds, 8 * inside);
}

TEST(LinkTimes, ShortCallsCostLatenciesThatGrowByTheLogarithm) {
  const MeshShape mesh({{"dp", 512}}, 512);
  const Hardware with = machine();
  const LinkTimes times(mesh, with);
  const double latencies = 3 * 1e-6 + 6 * 10e-6;  // 8 ranks of a machine, 64 machines
  EXPECT_NEAR(times.collective(0, {"dp"}, 8, false).seconds, latencies, 1e-7);
  EXPECT_NEAR(times.collective(0, {"dp"}, 0, false).seconds, latencies, 1e-12);
  EXPECT_FALSE(times.collective(0, {"dp"}, 0, false).use.any());
}

TEST(LinkTimes, ALongCallOverManyMachinesHasTheLatenciesOfARing) {
  const MeshShape mesh({{"dp", 512}}, 512);
  const Hardware with = machine();
  const double around = 448 * 1e-6 + 64 * 10e-6;
  EXPECT_NEAR(LinkTimes(mesh, with).collective(0, {"dp"}, kBytes, false).seconds, 1.0 / 400 + around, 1e-6);
}

TEST(LinkTimes, TwoLevelsMoveBytesInsideAndThenBetweenMachines) {
  const MeshShape mesh({{"dp", 16}}, 16);
  Hardware with = machine();
  with.across.latency = with.inside.latency = 0;
  const double whole = 16.0 / 15;  // GB that a collective of 1 GB per rank moves
  expect_seconds(LinkTimes(mesh, with).collective(0, {"dp"}, kBytes, true), whole * 7 / 8 / 450 + whole / 2 / 400);
}

TEST(LinkTimes, AnExchangeOfExpertsUsesEachRanksOwnCard) {
  const MeshShape mesh({{"ep", 16}}, 16);
  Hardware with = machine();
  with.across.latency = with.inside.latency = 0;
  expect_seconds(LinkTimes(mesh, with).all_to_all(0, {"ep"}, kBytes), 8.0 / 15 / 50);
  const MeshShape one({{"ep", 8}}, 8);
  expect_seconds(LinkTimes(one, with).all_to_all(0, {"ep"}, kBytes), 1.0 / 450);
}

TEST(LinkTimes, AMessageTakesTheCardThatIsFree) {
  Hardware with = machine();
  with.across.latency = with.inside.latency = 0;
  with.cards_per_machine = 1;
  const MeshShape outer({{"pp", 2}, {"dp", 8}}, 16), inner({{"dp", 2}, {"pp", 16}}, 32);
  expect_seconds(LinkTimes(outer, with).message(3, {"pp"}, 1, kBytes), 8.0 / 50);  // eight ranks send at the same time
  expect_seconds(LinkTimes(inner, with).message(7, {"pp"}, 8, kBytes), 1.0 / 50);
  expect_seconds(LinkTimes(inner, with).message(2, {"pp"}, 3, kBytes), 1.0 / 450);
}

TEST(LinkTimes, SaysWhichRateIsMissing) {
  const MeshShape mesh({{"dp", 16}}, 16);
  Hardware with = machine();
  with.across.bandwidth = 0;
  EXPECT_CONTAINS(message_of<Misuse>([&] { LinkTimes(mesh, with).collective(0, {"dp"}, kBytes, false); }), "hardware.across");
  with.ranks_per_machine = 16;
  with.inside.bandwidth = 0;
  EXPECT_CONTAINS(message_of<Misuse>([&] { LinkTimes(mesh, with).collective(0, {"dp"}, kBytes, false); }), "hardware.inside");
}

}  // namespace
}  // namespace zt::test
