// Asynchronous operations: their order, their progress, and the lifetime of their tensors.
#include <gtest/gtest.h>

#include <thread>

#include "comm/support/ranks.h"

namespace zt::test {

namespace {

TEST(Async, SeveralInFlightFinishInOrder) {
  on_ranks([](Communicator& comm) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 8; ++i) {
      tensors.push_back(at::full({10000}, comm.rank() + 1 + i, at::kLong));
      works.push_back(comm.all_reduce(tensors.back(), tensors.back(), ReduceOp::sum, Async::yes));
    }
    works.back().wait();
    const int64_t ranks = comm.size();
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(works[static_cast<size_t>(i)].done()) << "the last one is done, so all before it are";
      EXPECT_TRUE(tensors[static_cast<size_t>(i)].eq(ranks * (ranks + 1) / 2 + ranks * i).all().item<bool>());
    }
  });
}

TEST(Async, ProgressesWithoutBeingWaitedFor) {
  on_ranks([](Communicator& comm) {
    auto tensor = at::ones({100000});
    const Work work = comm.all_reduce(tensor, tensor, ReduceOp::sum, Async::yes);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!work.done() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(work.done());
    EXPECT_TRUE(tensor.eq(comm.size()).all().item<bool>());
  });
}

TEST(Async, BlockingCallsKeepTheOrder) {
  on_ranks([](Communicator& comm) {
    auto first = at::ones({50000}), second = at::zeros({1});
    comm.all_reduce(first, first, ReduceOp::sum, Async::yes);
    comm.broadcast(second, 0);
    EXPECT_TRUE(first.eq(comm.size()).all().item<bool>()) << "the blocking call ran after it";
  });
}

TEST(Async, KeepsItsTensorsAlive) {
  on_ranks([](Communicator& comm) {
    auto out = at::zeros({20000});
    Work work = comm.all_reduce(out, at::ones({20000}), ReduceOp::sum, Async::yes);
    work.wait();
    EXPECT_TRUE(out.eq(comm.size()).all().item<bool>());
  });
}

TEST(Async, DrainWaitsForAll) {
  on_ranks([](Communicator& comm) {
    auto tensor = at::ones({200000});
    const Work work = comm.all_reduce(tensor, tensor, ReduceOp::sum, Async::yes);
    comm.drain();
    EXPECT_TRUE(work.done());
    comm.drain();
  });
}

// Each communicator has its own order of operations, so ranks may call two of them in different orders.
TEST(Async, DuplicatesAreIndependent) {
  on_ranks([](Communicator& comm) {
    const auto other = comm.duplicate("dp again");
    EXPECT_EQ(other->name(), "dp again");
    EXPECT_EQ(other->size(), comm.size());
    auto a = at::ones({1000}), b = at::ones({1000});
    Communicator& first = comm.rank() % 2 == 0 ? comm : *other;
    Communicator& second = comm.rank() % 2 == 0 ? *other : comm;
    const Work one = first.all_reduce(&first == &comm ? a : b, &first == &comm ? a : b, ReduceOp::sum, Async::yes);
    second.all_reduce(&second == &comm ? a : b, &second == &comm ? a : b);
    one.wait();
    EXPECT_TRUE(a.eq(comm.size()).all().item<bool>());
    EXPECT_TRUE(b.eq(comm.size()).all().item<bool>());
  });
}

}  // namespace

}  // namespace zt::test
