// The calls that the nccl backend makes, against a fake NCCL and fake streams that log them. No GPU.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "core/segments.h"
#include "nccl_fixture.h"
#include "support/message.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::comm {

namespace {

using namespace fake;

TEST(Gpus, EachRankOfAMachineHasItsOwn) {
  EXPECT_EQ(gpu_of({3, 4}, 8), 3);
  EXPECT_EQ(gpu_of({3, 4}, 1), 0) << "each process sees one only";
  EXPECT_CONTAINS(test::message_of<Misuse>([] { gpu_of({0, 8}, 4); }), "each of the 8 ranks of a machine, and this one has 4");
}

TEST_F(NcclTest, OrdersItsStreamBehindTheCurrentOneAndBack) {
  const auto comm = make();
  const auto t = at::ones({4});
  const Work work = comm->all_reduce(t, t, ReduceOp::sum, Async::yes);
  const std::string call = fmt::format("all_reduce 4 type {} op {} stream 7", int{ncclFloat32}, int{ncclSum});
  EXPECT_EQ(log.take(), (Lines{"record 0", "block 7", "keep 7", "keep 7", call, "record 7"}));
  work.wait();
  EXPECT_EQ(log.take(), (Lines{"block 0"}));
  comm->all_reduce(t, t);
  EXPECT_EQ(log.take().back(), "block 0") << "a blocking call makes the current stream wait, not the host";
}

TEST_F(NcclTest, AddsUpOnItsStreamInTheFixedOrder) {
  const auto comm = make(SumOrder::fixed);
  comm->reduce_scatter(at::ones({2}), at::ones({6}));
  EXPECT_EQ(log.take(), (Lines{"record 0", "block 7", "keep 7", "keep 7", "current 7", "keep 7", "(", "send 8 to 0",
                               "recv 8 from 0", "send 8 to 2", "recv 8 from 2", ")", "current 0", "record 7", "block 0"}));
}

TEST_F(NcclTest, CallsOfEveryCollective) {
  const auto comm = make();
  const auto one = at::ones({2}), three = at::ones({6});
  comm->reduce_scatter(one, three);
  comm->all_gather(three, one);
  comm->broadcast(one, 2);
  comm->reduce(at::Tensor(), one, 0);
  comm->reduce(one, one, 1);
  EXPECT_EQ(calls(), (Lines{"reduce_scatter 2", "all_gather 8", "broadcast 8 from 2", "reduce 2 to 0 no out", "reduce 2 to 1"}));
  nccl.shown = one;
  comm->send(one, 0);
  comm->recv(one, 2);
  comm->gather(at::Tensor(), one, 0);
  comm->scatter(one, at::Tensor(), 2);
  EXPECT_EQ(calls(),
            (Lines{"send 8 at 0 to 0", "recv 8 at 0 from 2", "(", "send 8 at 0 to 0", ")", "(", "recv 8 at 0 from 2", ")"}));
}

TEST_F(NcclTest, UnequalAllToAllIsOneGroup) {
  const auto comm = make();
  const auto buffer = at::arange(8, at::kFloat);
  nccl.shown = buffer;
  comm->all_to_all(buffer.narrow(0, 4, 4), buffer.narrow(0, 0, 4), {0, 3, 1}, {1, 3, 0});
  EXPECT_EQ(calls(), (Lines{"(", "send 4 at 0 to 0", "recv 0 at 16 from 0", "send 12 at 4 to 1", "recv 12 at 16 from 1",
                            "send 0 at 16 to 2", "recv 4 at 28 from 2", ")"}));
  EXPECT_TRUE(at::equal(buffer.narrow(0, 4, 3), buffer.narrow(0, 1, 3))) << "its own part";
}

TEST_F(NcclTest, ListsAreOneGroup) {
  const auto any = make();
  any->all_gather(std::vector<at::Tensor>{at::ones({3}), at::ones({6})}, std::vector<at::Tensor>{at::ones({1}), at::ones({2})});
  EXPECT_EQ(calls(), (Lines{"(", "all_gather 4", "all_gather 8", ")"}));
  const auto fixed = make(SumOrder::fixed);
  fixed->all_reduce({at::ones({3}), at::ones({2})});
  EXPECT_EQ(calls(), (Lines{"(", "send 4 to 0", "recv 4 from 0", "send 4 to 2", "recv 4 from 2", "send 4 to 0", "recv 4 from 0",
                            "recv 4 from 2", ")", "(", "all_gather 4", "send 4 to 0", "recv 4 from 0", "send 4 to 2", ")"}));
}

TEST_F(NcclTest, TheFixedOrderMovesSegments) {
  const auto comm = make(SumOrder::fixed);
  const auto all_reduce = [&](int64_t n) {
    nccl.shown = at::ones({n});
    comm->all_reduce(nccl.shown, nccl.shown);
    return calls();
  };
  EXPECT_EQ(all_reduce(6), (Lines{"(", "send 8 at 0 to 0", "recv 8 from 0", "send 8 at 16 to 2", "recv 8 from 2", ")", "(",
                                  "all_gather 8 at 8", ")"}));
  EXPECT_EQ(all_reduce(7), (Lines{"(", "send 12 at 0 to 0", "recv 8 from 0", "send 8 at 20 to 2", "recv 8 from 2", ")", "(",
                                  "send 8 at 12 to 0", "recv 12 at 0 from 0", "send 8 at 12 to 2", "recv 8 at 20 from 2", ")"}));
  EXPECT_EQ(all_reduce(1), (Lines{"(", "send 4 at 0 to 0", ")", "(", "recv 4 at 0 from 0", ")"}));
  nccl.shown = at::ones({6});
  comm->reduce_scatter(at::ones({2}), nccl.shown);
  EXPECT_EQ(calls(), (Lines{"(", "send 8 at 0 to 0", "recv 8 from 0", "send 8 at 16 to 2", "recv 8 from 2", ")"}));
  comm->reduce(at::Tensor(), nccl.shown, 0);
  comm->reduce(nccl.shown, nccl.shown, 1);
  EXPECT_EQ(calls(), (Lines{"(", "send 24 at 0 to 0", ")", "(", "recv 24 from 0", "recv 24 from 2", ")"}));
}

TEST_F(NcclTest, TheFixedOrderGivesTheBitsOfTheTree) {
  const auto comm = make(SumOrder::fixed);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto sources = sources_of(3, 20, dtype);
    const auto sum = reduce_sources(sources);
    EXPECT_FALSE(same_bits(sources[2].add(sources[1]).add(sources[0]), sum))
        << "another order, or rounding twice, gives other bits";
    const Segments segments{20, 3};
    const auto part = [&](const at::Tensor& tensor, int r) { return tensor.narrow(0, segments.begin(r), segments.size(r)); };
    const auto out = at::zeros({20}, dtype), inout = sources[1].clone(), in = sources[1].clone();
    for (const auto& to : {out, inout}) {
      for (const int r : {0, 2}) nccl.arriving[r] = {part(sources[r], 1), part(sum, r)};
      comm->all_reduce(to, to.is_same(inout) ? inout : in);
      EXPECT_TRUE(same_bits(to, sum)) << dtype_name(dtype);
    }
    EXPECT_TRUE(same_bits(in, sources[1])) << "it was not in place";

    for (const int r : {0, 2}) nccl.arriving[r] = {sources[r]};
    comm->reduce(out.zero_(), in, 1);
    EXPECT_TRUE(same_bits(out, sum));

    const auto scattered = sources[1].narrow(0, 0, 18).clone();
    for (const int r : {0, 2}) nccl.arriving[r] = {sources[r].narrow(0, 6, 6)};
    comm->reduce_scatter(scattered.narrow(0, 6, 6), scattered);
    EXPECT_TRUE(same_bits(scattered.narrow(0, 6, 6), sum.narrow(0, 6, 6)));
    EXPECT_TRUE(same_bits(scattered.narrow(0, 0, 6), sources[1].narrow(0, 0, 6)));
    EXPECT_TRUE(same_bits(scattered.narrow(0, 12, 6), sources[1].narrow(0, 12, 6)));
  }
}

TEST_F(NcclTest, WritesAsNcclDoesUnseenByAutograd) {
  const auto comm = make(SumOrder::fixed);
  const auto parameter = at::ones({6}).requires_grad_();
  const auto version = parameter._version();
  comm->all_reduce(parameter, parameter);
  EXPECT_EQ(parameter._version(), version);
}

TEST_F(NcclTest, OneRankIsEnough) {
  const auto comm = make(SumOrder::fixed, {"dp", 0, {4}});
  const auto in = at::arange(5, at::kFloat);
  const auto get = [&](const auto& call) {
    const auto out = at::zeros({5});
    call(out);
    return out;
  };
  EXPECT_TRUE(at::equal(get([&](const auto& out) { comm->all_reduce(out, in); }), in));
  EXPECT_TRUE(at::equal(get([&](const auto& out) { comm->reduce_scatter(out, in); }), in));
  EXPECT_TRUE(at::equal(get([&](const auto& out) { comm->reduce(out, in, 0); }), in));
  EXPECT_TRUE(calls().empty()) << "nothing has to travel";
  EXPECT_TRUE(at::equal(get([&](const auto& out) { comm->gather(out, in, 0); }), in));
  EXPECT_TRUE(at::equal(get([&](const auto& out) { comm->scatter(out, in, 0); }), in));
  EXPECT_TRUE(at::equal(get([&](const auto& out) { comm->all_to_all(out, in); }), in));
  EXPECT_EQ(comparisons.made, 0);
}

TEST_F(NcclTest, BooleansTravelAsBytes) {
  const auto comm = make();
  const auto t = at::ones({4}, at::kBool);
  comm->all_reduce(t, t, ReduceOp::sum);
  comm->all_reduce(t, t, ReduceOp::product);
  EXPECT_EQ(calls(), (Lines{fmt::format("all_reduce 4 type {} op {} stream 7", int{ncclUint8}, int{ncclMax}),
                            fmt::format("all_reduce 4 type {} op {} stream 7", int{ncclUint8}, int{ncclMin})}));
}

TEST_F(NcclTest, TypesThatCannotBeReducedAreRefusedBeforeAnythingStarts) {
  RecordedBackend any(make_backend());
  log.take();
  const auto half_word = at::ones({3}, at::kShort);
  EXPECT_SAYS("NCCL cannot reduce tensors of type int16", any.all_reduce(half_word));
  EXPECT_TRUE(log.take().empty());
  EXPECT_EQ(any.stage(0), CallStage::failed);
  any.all_reduce(at::ones({3}));
  EXPECT_EQ(any.stage(1), CallStage::running) << "it stays usable";
  log.take();
  const auto fixed = make(SumOrder::fixed);
  fixed->all_reduce(half_word, half_word);
  const auto word = at::ones({3}, at::kInt).view(at::kUInt32);
  EXPECT_SAYS("has no max of uint32", fixed->all_reduce(word, word, ReduceOp::max));
}

TEST_F(NcclTest, Duplicates) {
  const auto whole = make_backend(SumOrder::fixed);
  whole->set_timeout(std::chrono::milliseconds(20));
  whole->set_check(CheckMode::full);
  const auto copy = whole->duplicate("back");
  EXPECT_EQ(log.take(), (Lines{"init 1 of 3", "init 1 of 3"}));
  EXPECT_EQ(copy->group().name, "back");

  const auto t = at::ones({6});
  streams->stop();
  const Work work = copy->submit({.kind = CallKind::all_reduce, .out = {t}, .in = {t}, .turn = kCheckedFirst}, Async::yes);
  EXPECT_EQ(calls(), (Lines{"(", "send 8 to 0", "recv 8 from 0", "send 8 to 2", "recv 8 from 2", ")", "(", "all_gather 8", ")"}))
      << "the order of the first";
  EXPECT_EQ(comparisons.made, 1) << "the check of the first";
  const auto late = test::message_of<Fault>([&] { work.synchronize(); });
  EXPECT_CONTAINS(late, "timed out after 0.02 s: rank 1 (world rank 1) of axis 'back'");
}

TEST_F(NcclTest, DestroysCommunicatorsWhenTheNextIsMade) {
  make_backend().reset();
  EXPECT_EQ(log.take(), Lines{"init 1 of 3"}) << "a garbage collection may come at any time";
  const auto next = make_backend();
  EXPECT_EQ(log.take(), (Lines{"destroy", "init 1 of 3"}));
}

TEST_F(NcclTest, OldVersionsAreRefused) {
  const auto said_of = [&](int version) {
    nccl.api.get_version = [version](int* out) {
      *out = version;
      return ncclSuccess;
    };
    return test::message_of<Fault>([&] { check_nccl_version(nccl.api); });
  };
  const std::string recent = said_of(21803), ancient = said_of(2708);
  EXPECT_CONTAINS(recent, "NCCL 2.18.3 is loaded (libnccl.so.2), 2.19 or newer is needed");
  EXPECT_CONTAINS(ancient, "NCCL 2.7.8 is loaded");
  EXPECT_EQ(said_of(21900), "no error");
  EXPECT_EQ(said_of(22809), "no error");
}

TEST_F(NcclTest, MemoryIsNcclsAndGoesBackToIt) {
  auto backend = make_backend();
  log.take();
  auto tensor = backend->allocate({2, 3}, at::kInt);
  EXPECT_TRUE(at::equal(tensor, at::zeros({2, 3}, at::kInt)));
  EXPECT_EQ(log.take(), (Lines{"alloc 24"}));
  const auto empty = backend->allocate({0, 3}, at::kInt);
  EXPECT_EQ(empty.size(1), 3);
  nccl.refused = "alloc";
  const auto said = test::message_of<Fault>([&] { backend->allocate({1024, 1024}, at::kFloat); });
  EXPECT_CONTAINS(said, "NCCL has no 4.0 MiB of memory on cpu for axis 'dp': a peer left");
  EXPECT_EQ(log.take(), (Lines{"alloc 4194304"})) << "an empty tensor allocates nothing";
  tensor.reset();
  EXPECT_EQ(log.take(), Lines()) << "the device may still use it";
  nccl.refused = "";
  tensor = backend->allocate({2}, at::kInt);
  EXPECT_EQ(log.take(), (Lines{"synchronize", "free", "alloc 8"}));
  backend.reset();
  EXPECT_TRUE(at::equal(tensor, at::zeros({2}, at::kInt))) << "the tensor outlives the backend";
}

}  // namespace

}  // namespace zt::comm
