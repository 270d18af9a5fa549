// Verdicts on made-up flights. No ranks run.
#include "recorder/verdict.h"

#include <gtest/gtest.h>

#include "recorder/ended.h"
#include "recorder/inquiry.h"
#include "support/message.h"

namespace zt::comm {

namespace {

constexpr int64_t kSecond = 1'000'000'000, kNow = 1000 * kSecond;

Call all_reduce_of(int64_t count) {
  return {.kind = CallKind::all_reduce, .dtype = at::kFloat, .count = count};
}

// Builds the flight of one rank, with calls on axes over all ranks of a world.
class Rank {
 public:
  Rank(int rank, int size) : size_(size) {
    flight_ = {.rank = rank, .world_size = size, .process = 100 + rank, .end = {}, .tracks = {}};
    flight_.read_ns = kNow;
  }

  // seconds: how long ago the call began; for CallStage::done also how long ago it ended.
  Rank& call(const std::string& axis, const Call& call, CallStage stage, double seconds = 5) {
    Track& track = this->track(axis);
    CallRecord record;
    record.number = track.records.size();
    if (is_collective(call.kind)) record.turn = track.collectives++;
    else
      record.turn = static_cast<uint64_t>(std::count_if(track.records.begin(), track.records.end(), [&](const CallRecord& other) {
        return other.call.kind == call.kind && other.call.peer == call.peer;
      }));
    record.call = call;
    record.stage = stage;
    record.queued_ns = kNow - static_cast<int64_t>(seconds * kSecond);
    if (stage != CallStage::queued) record.started_ns = record.queued_ns;
    if (stage == CallStage::done) record.ended_ns = record.queued_ns;
    track.records.push_back(record);
    return *this;
  }
  Rank& done(const std::string& axis, const Call& what) { return call(axis, what, CallStage::done, 6); }
  Rank& waits(const std::string& axis, const Call& what, double seconds = 5) {
    return call(axis, what, CallStage::running, seconds);
  }
  Rank& doing(const char* activity) {
    std::strcpy(flight_.tracks.back().records.back().activity.data(), activity);
    return *this;
  }
  Rank& ended(const std::string& why) {
    flight_.end = why;
    return *this;
  }
  Rank& stopped() {
    flight_.is_stopped = true;
    return *this;
  }
  Rank& gone() {
    flight_.is_alive = false;
    return *this;
  }
  operator Flight() const { return flight_; }

 private:
  Track& track(const std::string& axis) {
    for (Track& track : flight_.tracks) {
      if (track.axis == axis) return track;
    }
    Track track{.axis = axis, .backend = "mpi", .ranks = {}, .records = {}};
    for (int r = 0; r < size_; ++r) track.ranks.push_back(r);
    flight_.tracks.push_back(track);
    return flight_.tracks.back();
  }
  int size_;
  Flight flight_;
};

using Lines = std::vector<std::string>;

TEST(Verdict, ARankThatNeverCame) {
  const auto two = all_reduce_of(2), many = all_reduce_of(1024);
  const auto verdict = judge({Rank(0, 4).done("dp", two).waits("dp", many).doing("REDUCE_GRAD 3"), Rank(1, 4).done("dp", two),
                              Rank(2, 4).done("dp", two).waits("dp", many), Rank(3, 4).done("dp", two).waits("dp", many, 4)});
  EXPECT_EQ(verdict.findings,
            Lines{"ranks 0, 2 and 3 wait in all_reduce of 1024 float32 (sum), operation 1 on axis dp (REDUCE_GRAD 3), for 5.0 s; "
                  "rank 1 has not called it: its last call was all_reduce of 2 float32 (sum), operation 0 on axis dp, done 6.0 s "
                  "ago"});
  EXPECT_TRUE(verdict.is_grave);
}

TEST(Verdict, AShortWaitIsNotGrave) {
  const auto two = all_reduce_of(2);
  const auto verdict = judge({Rank(0, 2).waits("dp", two, 0.2), Rank(1, 2)});
  EXPECT_EQ(verdict.findings.size(), 1U);
  EXPECT_FALSE(verdict.is_grave);
}

TEST(Verdict, DifferentCalls) {
  const Call sum{.kind = CallKind::reduce_scatter, .dtype = at::kFloat, .count = 1024};
  const Call gather{.kind = CallKind::all_gather, .dtype = at::kFloat, .count = 512};
  std::vector<Flight> flights;
  for (int r = 0; r < 4; ++r) flights.push_back(Rank(r, 4).done("dp", sum).waits("dp", r == 2 ? gather : sum));
  const auto verdict = judge(flights);
  ASSERT_GE(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0],
            "rank 2 called all_gather of 512 float32 where the others called reduce_scatter of 1024 "
            "float32 (sum), operation 1 on axis dp");
  EXPECT_CONTAINS(verdict.text(), "all ranks have called it");
}

TEST(Verdict, AKilledRank) {
  const auto two = all_reduce_of(2);
  const auto verdict = judge({Rank(0, 2).waits("dp", two, 0.1), Rank(1, 2).waits("dp", two, 0.1).gone()});
  ASSERT_EQ(verdict.findings.size(), 2U);
  EXPECT_CONTAINS(verdict.findings[0], "the process of rank 1 (101) is gone and said nothing");
  EXPECT_CONTAINS(verdict.findings[1], "rank 0 waits in all_reduce");
  EXPECT_TRUE(verdict.is_grave);
}

TEST(Verdict, ARankWhoseScriptHasEnded) {
  const auto verdict = judge({Rank(0, 2).waits("dp", {}), Rank(1, 2).done("tp", {}).ended("its script has ended")});
  EXPECT_EQ(verdict.findings,
            Lines{"rank 0 waits in barrier, operation 0 on axis dp, for 5.0 s; rank 1 has not called it: its script has ended"});
  const auto missing =
      judge({Rank(0, 2).done("dp", {}).waits("dp", {}), Rank(1, 2).done("dp", {}).ended("its script failed (the disk is full)")});
  EXPECT_CONTAINS(missing.text(), "rank 1 has not called it: its script failed (the disk is full)");
}

TEST(Verdict, WhatIsQueuedHasNotCome) {
  const Call send{.kind = CallKind::send, .dtype = at::kFloat, .peer = 1, .count = 10};
  const Call recv{.kind = CallKind::recv, .dtype = at::kFloat, .peer = 0, .count = 10};
  const auto ring = judge({Rank(0, 2).waits("pp", send), Rank(1, 2).waits("pp", {}).call("pp", recv, CallStage::queued)});
  EXPECT_CONTAINS(ring.text(), "rank 1 has not called it: it is in barrier");
  const auto two = all_reduce_of(2);
  const auto collective =
      judge({Rank(0, 2).done("dp", {}).waits("dp", two), Rank(1, 2).waits("dp", {}).call("dp", two, CallStage::queued)});
  EXPECT_CONTAINS(collective.text(), "rank 1 has not called it: it is in barrier, operation 0 on axis dp");
}

TEST(Verdict, AProcessThatIsStoppedIsNamed) {
  const auto two = all_reduce_of(2);
  const auto late = judge({Rank(0, 2).done("dp", two).waits("dp", two), Rank(1, 2).done("dp", two).stopped()});
  EXPECT_EQ(
      late.findings.front(),
      "the process of rank 1 (101) is stopped, by SIGSTOP, Ctrl-Z or a debugger, and the others wait for it: let it go on with "
      "kill -CONT 101");
  EXPECT_CONTAINS(late.text(), "rank 1 has not called it: its process is stopped");
  EXPECT_TRUE(late.is_grave);
  const auto inside = judge({Rank(0, 2).waits("dp", two), Rank(1, 2).waits("dp", two).stopped()});
  EXPECT_CONTAINS(inside.text(), "all ranks have called it, but the process of rank 1 is stopped");
}

TEST(Ended, ARankThatDidItsPartDisturbsNobody) {
  const auto two = all_reduce_of(2);
  const Group group{"dp", 0, {0, 1}};
  const auto may = [&](Rank rank, bool is_open, const Call& call, uint64_t turn) {
    Flight flight = rank;
    for (Track& track : flight.tracks) track.is_open = is_open;
    return may_complete(flight, group, 0, call, turn);
  };
  EXPECT_TRUE(may(Rank(1, 2).done("dp", two), false, two, 0));
  EXPECT_FALSE(may(Rank(1, 2).done("dp", two), false, two, 1));
  EXPECT_TRUE(may(Rank(1, 2).done("dp", two), true, two, 1)) << "its communicator is not closed yet";
  EXPECT_FALSE(may(Rank(1, 2).call("dp", two, CallStage::failed), false, two, 0)) << "given up when it was closed";
  EXPECT_FALSE(may(Rank(1, 2).done("tp", two), false, two, 0)) << "it never made this communicator";
  const Call recv{.kind = CallKind::recv, .dtype = at::kFloat, .peer = 1, .count = 10};
  const Call send{.kind = CallKind::send, .dtype = at::kFloat, .peer = 0, .count = 10};
  EXPECT_TRUE(may(Rank(1, 2).done("dp", send), false, recv, 0));
  EXPECT_FALSE(may(Rank(1, 2).done("dp", send), false, recv, 1));
}

TEST(Verdict, WhatAllHaveCalledIsNotGrave) {
  const auto two = all_reduce_of(2);
  const auto verdict = judge({Rank(0, 2).waits("dp", two), Rank(1, 2).call("dp", two, CallStage::done)});
  EXPECT_CONTAINS(verdict.text(), "all ranks have called it");
  EXPECT_FALSE(verdict.is_grave);
}

TEST(Verdict, NamesTheCallsThatRanksLackBeforeThoseThatAllHaveMade) {
  const auto two = all_reduce_of(2);
  const auto of_rank = [&](int rank) { return Rank(rank, 2).waits("tp", {}).waits("cp", two); };
  const auto verdict = judge({of_rank(0).waits("dp", two), of_rank(1)});
  EXPECT_EQ(verdict.findings.size(), 1U) << verdict.text();
  EXPECT_CONTAINS(verdict.text(), "axis dp");
  EXPECT_EQ(judge({of_rank(0), of_rank(1)}).findings.size(), 2U);
}

TEST(Verdict, ARankThatGaveUpWaitsAndOneThatCrashedHasCrashed) {
  const auto two = all_reduce_of(2);
  const auto verdict =
      judge({Rank(0, 3).waits("dp", two), Rank(1, 3).call("tp", two, CallStage::timed_out).ended("its script failed (x)"),
             Rank(2, 3).waits("tp", {}).ended("it crashed (SIGSEGV)")});
  EXPECT_CONTAINS(verdict.text(), "rank 1 has not called it: it is in all_reduce of 2 float32 (sum), operation 0 on axis tp");
  EXPECT_CONTAINS(verdict.text(), "rank 2 has not called it: it crashed (SIGSEGV)");
}

TEST(Verdict, AMessageThatNobodyTakes) {
  const Call send{.kind = CallKind::send, .dtype = at::kFloat, .peer = 1, .count = 10};
  const auto verdict = judge({Rank(0, 2).waits("pp", send), Rank(1, 2).done("pp", {})});
  EXPECT_EQ(verdict.findings,
            Lines{"rank 0 waits in send of 10 float32 to rank 1, message 0 on axis pp, for 5.0 s; rank 1 has not called it: its "
                  "last call was barrier, operation 0 on axis pp, done 6.0 s ago"});
}

TEST(Verdict, AMessageOfAnotherLength) {
  const Call send{.kind = CallKind::send, .dtype = at::kFloat, .peer = 1, .count = 10};
  const Call recv{.kind = CallKind::recv, .dtype = at::kFloat, .peer = 0, .count = 12};
  const auto verdict = judge({Rank(0, 2).waits("pp", send), Rank(1, 2).waits("pp", recv)});
  EXPECT_CONTAINS(verdict.text(),
                  "rank 0 called send of 10 float32 to rank 1 where rank 1 called recv of 12 float32 from "
                  "rank 0, message 0 on axis pp");
}

TEST(Verdict, TwoAxesInDifferentOrders) {
  const auto two = all_reduce_of(2);
  const auto verdict =
      judge({Rank(0, 2).waits("dp", two).call("tp", two, CallStage::done), Rank(1, 2).done("tp", two).waits("tp", two)});
  EXPECT_CONTAINS(verdict.text(),
                  "rank 1 waits in all_reduce of 2 float32 (sum), operation 1 on axis tp, for 5.0 s; rank 0 has not "
                  "called it: it is in all_reduce of 2 float32 (sum), operation 0 on axis dp");
  const auto circle = judge(
      {Rank(0, 2).done("tp", {}).done("dp", {}).waits("dp", two), Rank(1, 2).done("dp", {}).done("tp", {}).waits("tp", two)});
  EXPECT_EQ(circle.findings.back(), "ranks 0 and 1 wait for each other: they make these calls in different orders");
}

TEST(Verdict, NobodyWaits) {
  const auto verdict = judge({Rank(0, 2).done("dp", {}), Rank(1, 2).done("dp", {})});
  EXPECT_EQ(verdict.text(), "no rank waits for another");
  EXPECT_FALSE(verdict.is_grave);
  EXPECT_EQ(judge({}).text(), "no rank waits for another");
}

TEST(Verdict, RanksOfWhichNothingIsKnownAreNotBlamed) {
  const auto verdict = judge({Rank(0, 3).waits("dp", {}), Rank(1, 3)});
  EXPECT_CONTAINS(verdict.text(), "rank 0 waits in barrier");
  EXPECT_EQ(verdict.text().find("rank 2 has not"), std::string::npos);
  EXPECT_CONTAINS(verdict.text(), "nothing is known of rank 2");
}

TEST(Verdict, ListsOfRanks) {
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({1, 0}), "ranks 0 and 1");
  EXPECT_EQ(ranks_text({5, 0, 1, 2}), "ranks 0-2 and 5");
  EXPECT_EQ(ranks_text({0, 1, 2, 3}), "ranks 0-3");
  EXPECT_EQ(ranks_text({7, 0, 1, 2, 4, 5}), "ranks 0-2, 4, 5 and 7");
}

}  // namespace

}  // namespace zt::comm
