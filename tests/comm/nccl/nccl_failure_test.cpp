// Failures of the nccl backend against a fake NCCL: different calls, errors, timeouts, and their flight records. No GPU.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "nccl_fixture.h"
#include "support/message.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

using namespace fake;

TEST_F(NcclTest, ComparesCallsBeforeAnythingStarts) {
  const auto comm = make();
  const auto t = at::ones({4});
  comm->all_reduce(t, t);
  EXPECT_EQ(comparisons.made, 1);
  log.take();
  comparisons.of_rank_2 = Call{.kind = CallKind::broadcast, .dtype = at::kFloat, .peer = 0, .count = 4};
  const auto said = test::message_of<Fault>([&] { comm->all_reduce(t, t); });
  EXPECT_CONTAINS(said, "rank 2 (world rank 2) called broadcast of 4 float32 from rank 0 (world rank 0)");
  EXPECT_CONTAINS(said, "the others called all_reduce of 4 float32 (sum)");
  EXPECT_EQ(log.take(), (Lines{"abort"}));
  comparisons.of_rank_2.reset();
  const auto again = test::message_of<Fault>([&] { comm->all_reduce(t, t); });
  EXPECT_CONTAINS(again, "the communicator failed before");
}

TEST_F(NcclTest, ComparesTheFirstCallsOrAll) {
  const auto backend = make_backend();
  const auto submit = [&](CallKind kind, uint64_t turn) {
    const auto t = at::ones({3});
    const bool sends = kind == CallKind::send;
    backend->submit({.kind = kind, .out = sends ? Tensors() : Tensors(t), .in = {t}, .peer = 0, .turn = turn}, Async::no);
    return comparisons.made;
  };
  EXPECT_EQ(submit(CallKind::all_reduce, kCheckedFirst), 0);
  EXPECT_EQ(submit(CallKind::all_reduce, kCheckedFirst - 1), 1);
  EXPECT_EQ(submit(CallKind::send, 0), 1) << "only two ranks know of a message";
  backend->set_check(CheckMode::full);
  EXPECT_EQ(submit(CallKind::all_reduce, kCheckedFirst), 2);
}

TEST_F(NcclTest, BarrierIsASumThatTheHostWaitsFor) {
  const auto comm = make(SumOrder::fixed);
  comm->barrier();
  EXPECT_EQ(calls().size(), 1u);
  streams->stop();
  comm->set_timeout(std::chrono::milliseconds(50));
  const auto said = test::message_of<Fault>([&] { comm->barrier(); });
  EXPECT_CONTAINS(said, "timed out after 0.05 s: rank 1 (world rank 1) of axis 'dp' waits in operation 1, barrier");
  EXPECT_EQ(calls().back(), "abort");
  EXPECT_THROW(comm->barrier(), Fault) << "a failed communicator stays failed";
}

TEST_F(NcclTest, AnErrorOfACallEndsTheCommunicator) {
  const auto comm = make(SumOrder::fixed);
  const auto t = at::ones({3});
  nccl.refused = "send";
  const auto said = test::message_of<Fault>([&] { comm->all_reduce(t, t); });
  EXPECT_CONTAINS(said, "all_reduce of 3 float32 (sum) on axis 'dp' failed, operation 0 of rank 1 (world rank 1) on nccl");
  EXPECT_CONTAINS(said, "NCCL failed in send: a peer left");
  EXPECT_EQ(calls(), (Lines{"(", "send 4 to 0", ")", "abort"})) << "no group stays open";
  EXPECT_EQ(streams->now, 0) << "and the current stream is the one before";
  nccl.refused.clear();
  const auto again = test::message_of<Fault>([&] { comm->broadcast(t, 0); });
  EXPECT_CONTAINS(again, "the communicator failed before and cannot be used any more: " + said);
  EXPECT_THROW(comm->drain(), Fault);
  EXPECT_TRUE(calls().empty());
}

TEST_F(NcclTest, AnAsynchronousErrorFailsWhatRuns) {
  const auto comm = make();
  const auto t = at::ones({4});
  const auto start = [&] { return comm->all_reduce(t, t, ReduceOp::sum, Async::yes); };
  const Work over = start();
  streams->stop();
  const Work running = start(), last = start();
  nccl.async_error = ncclRemoteError;
  const auto said = test::message_of<Fault>([&] { last.synchronize(); });
  EXPECT_CONTAINS(said, "waits in operation 2, all_reduce of 4 float32 (sum): NCCL reports a peer left");
  EXPECT_EQ(calls().back(), "abort");
  EXPECT_TRUE(running.done());
  EXPECT_THROW(running.wait(), Fault);
  EXPECT_THROW(running.synchronize(), Fault);
  EXPECT_TRUE(over.done());
  over.synchronize();
  over.wait();
}

TEST_F(NcclTest, TheRingSaysWhatRunsAndEnds) {
  RecordedBackend comm(make_backend());
  const auto t = at::ones({3});
  streams->stop();
  const Work first = comm.all_reduce(t), second = comm.all_reduce(t);
  EXPECT_FALSE(second.done());
  EXPECT_EQ(comm.stage(0), CallStage::running);
  EXPECT_EQ(comm.stage(1), CallStage::running);
  EXPECT_GE(comm.record(0).started_ns, comm.record(0).queued_ns);
  streams->go_on();
  EXPECT_TRUE(second.done());
  EXPECT_EQ(comm.stage(0), CallStage::done) << "there is one stream, so earlier operations are done, too";
  EXPECT_EQ(comm.stage(1), CallStage::done);
  EXPECT_GE(comm.record(1).ended_ns, comm.record(1).started_ns);

  comm.all_reduce(t);
  EXPECT_EQ(comm.stage(2), CallStage::running) << "the host has not looked";
  comm.all_reduce(t);
  EXPECT_EQ(comm.stage(2), CallStage::done) << "the next call looks, though no Work is held";
  nccl.refused = "all_reduce";
  EXPECT_THROW(comm.all_reduce(t), Fault);
  EXPECT_EQ(comm.stage(3), CallStage::done);
  EXPECT_EQ(comm.stage(4), CallStage::failed);
}

TEST_F(NcclTest, ATimeOutFailsWhatRuns) {
  RecordedBackend comm(make_backend());
  comm.backend->set_timeout(std::chrono::milliseconds(10));
  const auto t = at::ones({3});
  comm.all_reduce(t);
  streams->stop();
  const Work first = comm.all_reduce(t), second = comm.all_reduce(t);
  EXPECT_THROW(first.synchronize(), Fault);
  EXPECT_EQ(comm.stage(0), CallStage::done);
  EXPECT_EQ(comm.stage(1), CallStage::timed_out);
  EXPECT_EQ(comm.stage(2), CallStage::timed_out);
}

TEST_F(NcclTest, GivesBackEventsAndTheCommunicator) {
  {
    const auto comm = make();
    const auto t = at::ones({1});
    const Work work = comm->broadcast(t, 0, Async::yes);
    comm->broadcast(t, 0);
    comm->drain();
    EXPECT_EQ(streams->alive, 1) << "the event that the Work holds";
  }
  EXPECT_EQ(streams->alive, 0);
  EXPECT_EQ(nccl.api.retired->take(streams->device()).comms.size(), 1U);
}

TEST_F(NcclTest, WhatNeverEndsIsEndedWithTheCommunicator) {
  {
    const auto comm = make();
    comm->set_timeout(std::chrono::milliseconds(5));
    streams->stop();
    comm->broadcast(at::ones({1}), 0, Async::yes);
  }
  EXPECT_EQ(calls().back(), "abort") << "destroying it would wait for ever";
  EXPECT_EQ(streams->alive, 0);
}

}  // namespace

}  // namespace zt::comm
