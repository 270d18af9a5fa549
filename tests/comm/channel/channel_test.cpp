// Channels between two ranks: order, depth, all kinds of tensors, both directions at once, and errors. On every backend, with
// ranks as threads and as processes.
#include "zt/comm/channel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/support/ranks.h"
#include "support/message.h"
#include "zt/base/error.h"

namespace zt::test {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Calls `body` on the two ends of a channel from rank 0 to the last rank.
void on_ends(int depth, const std::function<void(Communicator&, Channel&)>& body) {
  on_ranks([&](Communicator& comm) {
    const int last = comm.size() - 1;
    if (last > 0 && (comm.rank() == 0 || comm.rank() == last)) body(comm, *comm.channel(0, last, depth, "pp forward"));
    comm.barrier();
  });
}

TEST(Channel, KeepsTheOrder) {
  on_ends(3, [](Communicator& comm, Channel& channel) {
    EXPECT_EQ(channel.depth(), 3);
    EXPECT_EQ(channel.name(), "pp forward");
    for (int64_t i = 0; i < 200; ++i) {
      // Lengths around what fits into one message of mpi.
      const int64_t n = i % 7 == 0 ? 100000 : i % 5 == 0 ? 250 + i / 5 : 10;
      if (comm.rank() == 0) {
        channel.send({at::full({n}, static_cast<double>(i))});
      } else {
        const auto received = channel.recv();
        received.work.wait();
        ASSERT_EQ(received.tensors.size(), 1U);
        EXPECT_TRUE(at::equal(received.tensors[0], at::full({n}, static_cast<double>(i)))) << i;
      }
    }
  });
}

TEST(Channel, HoldsAsManyMessagesAsItsDepth) {
  for (const int64_t n : {4, 300000}) {
    on_ends(2, [&](Communicator& comm, Channel& channel) {
      const auto flag = at::zeros({1});
      const int last = comm.size() - 1;
      if (comm.rank() == 0) {
        std::vector<Work> works;
        const auto begin = steady_clock::now();
        for (int i = 0; i < 2; ++i) works.push_back(channel.send({at::full({n}, i)}));
        comm.send(flag, last);  // not reached if a send above waits for the receiver, who waits for the flag
        works.push_back(channel.send({at::full({n}, 2)}));
        EXPECT_GE(steady_clock::now() - begin, milliseconds(300)) << "the third message waits until the first one is taken";
        for (const Work& work : works) work.wait();
      } else {
        comm.recv(flag, 0);
        std::this_thread::sleep_for(milliseconds(300));
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(channel.recv().tensors.at(0), at::full({n}, i)));
      }
    });
  }
}

std::vector<std::vector<at::Tensor>> all_kinds() {
  const auto matrix = at::arange(35, at::kFloat).reshape({5, 7});
  return {{},
          {at::Tensor()},
          {at::scalar_tensor(3.5, at::kDouble)},
          {at::empty({0, 4}, at::kLong), at::ones({2, 3})},
          {matrix.t(), matrix.narrow(1, 2, 3), matrix.expand({3, 5, 7})},
          {matrix.to(at::kBFloat16), matrix.gt(3), at::Tensor(), matrix.to(at::kHalf)},
          {matrix.to(at::kBFloat16).add(1), matrix.gt(5), at::Tensor(), matrix.to(at::kHalf).add(2)},
          {at::ones({1, 1, 1, 1, 1, 1, 1}).to(at::kUInt16), at::arange(70001, at::kInt)},
          {at::view_as_complex(at::arange(8, at::kFloat).reshape({4, 2})).conj()},
          std::vector<at::Tensor>(300, at::scalar_tensor(1)),
          {at::arange(1000003, at::kByte)},
          {at::Tensor(), at::arange(500000, at::kDouble), at::ones({3})},
          {at::ones({2}, at::kChar)}};
}

TEST(Channel, MovesAllKindsOfTensors) {
  on_ends(2, [](Communicator& comm, Channel& channel) {
    for (int round = 0; round < 3; ++round) {
      for (const auto& sent : all_kinds()) {
        if (comm.rank() == 0) {
          channel.send(sent).wait();
          continue;
        }
        const auto received = channel.recv();
        received.work.wait();
        ASSERT_EQ(received.tensors.size(), sent.size());
        for (size_t i = 0; i < sent.size(); ++i) {
          const at::Tensor& got = received.tensors[i];
          ASSERT_EQ(got.defined(), sent[i].defined());
          if (!got.defined()) continue;
          EXPECT_TRUE(got.is_contiguous());
          EXPECT_EQ(got.scalar_type(), sent[i].scalar_type());
          EXPECT_EQ(got.sizes(), sent[i].sizes());
          EXPECT_TRUE(at::equal(got, sent[i]));
        }
      }
    }
  });
}

TEST(Channel, ReceivedTensorsAndSentOnesAreIndependent) {
  on_ends(1, [](Communicator& comm, Channel& channel) {
    if (comm.rank() == 0) {
      const auto tensor = at::zeros({50000});
      for (int i = 0; i < 5; ++i) {
        tensor.fill_(i);
        channel.send({tensor}).wait();
      }
    } else {
      std::vector<at::Tensor> kept;
      for (int i = 0; i < 5; ++i) kept.push_back(channel.recv().tensors.at(0));
      for (int i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(kept[static_cast<size_t>(i)], at::full({50000}, i)));
    }
  });
}

// Every rank sends to the next and to the one before, with collectives of the axis between.
TEST(Channel, DirectionsAndCollectivesAreIndependent) {
  on_ranks([](Communicator& comm) {
    const int size = comm.size(), rank = comm.rank();
    if (size == 1) return;
    std::vector<std::shared_ptr<Channel>> to, from;
    for (int edge = 0; edge + 1 < size; ++edge) {
      if (rank != edge && rank != edge + 1) continue;
      auto forward = comm.channel(edge, edge + 1, 2, "forward"), backward = comm.channel(edge + 1, edge, 2, "backward");
      to.push_back(rank == edge ? forward : backward);
      from.push_back(rank == edge ? backward : forward);
    }
    for (int i = 0; i < 20; ++i) {
      const int64_t n = i % 3 == 0 ? 60000 : 9;
      std::vector<Work> works;
      for (const auto& channel : to) works.push_back(channel->send({at::full({n}, rank * 100 + i)}));
      const auto sum = at::ones({1000});
      comm.all_reduce(sum, sum);
      EXPECT_EQ(sum[999].item<float>(), static_cast<float>(size));
      size_t next = 0;
      for (const int peer : {rank - 1, rank + 1}) {
        if (peer < 0 || peer >= size) continue;
        EXPECT_TRUE(at::equal(from[next++]->recv().tensors.at(0), at::full({n}, peer * 100 + i)));
      }
      for (const Work& work : works) work.wait();
    }
    comm.barrier();
  });
}

TEST(Channel, LivesLongerThanItsCommunicator) {
  on_worlds([](const World& world) {
    auto comm = world_communicator(world);
    if (world.size < 2) return;
    const auto channel = world.rank < 2 ? comm->channel(0, 1, 1, "x") : nullptr;
    comm->barrier();
    comm.reset();
    if (world.rank == 0) channel->send({at::ones({3})}).wait();
    if (world.rank == 1) {
      EXPECT_TRUE(at::equal(channel->recv().tensors.at(0), at::ones({3})));
    }
  });
}

TEST(Channel, WrongEndsAndArgumentsAreMisuse) {
  on_ranks([](Communicator& comm) {
    const auto said = [&](int from, int to, int depth) {
      return message_of<Misuse>([&] { comm.channel(from, to, depth, "x"); });
    };
    EXPECT_CONTAINS(said(comm.rank(), comm.rank(), 1), "needs two different ranks");
    EXPECT_CONTAINS(said(comm.rank(), comm.size(), 1), "is not a rank of this axis");
    if (comm.size() == 1) return;
    EXPECT_CONTAINS(said(comm.rank(), (comm.rank() + 1) % comm.size(), 0), "the depth must be at least 1, not 0");
    if (comm.size() > 2) {
      EXPECT_CONTAINS(said((comm.rank() + 1) % comm.size(), (comm.rank() + 2) % comm.size(), 1),
                      "only its two ranks may make it");
    }
    if (comm.rank() > 1) return;
    const auto channel = comm.channel(0, 1, 1, "pp forward 0>1");
    if (comm.rank() == 0) {
      EXPECT_CONTAINS(message_of<Misuse>([&] { channel->recv(); }), "channel 'pp forward 0>1': rank 0 (world rank 0) sends");
      EXPECT_CONTAINS(message_of<Misuse>([&] { channel->send({at::ones({2}).to_sparse()}); }), "only dense tensors");
      channel->send({at::ones({1})}).wait();
    } else {
      EXPECT_CONTAINS(message_of<Misuse>([&] { channel->send({}); }), "only rank 0 (world rank 0) may send");
      EXPECT_EQ(channel->recv().tensors.size(), 1U) << "the channel stays usable";
    }
  });
}

}  // namespace

}  // namespace zt::test
