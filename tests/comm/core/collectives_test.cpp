// Every collective, type and size, in and out of place, against closed-form answers.
#include <gtest/gtest.h>

#include "comm/support/ranks.h"

namespace zt::test {

namespace {

const std::vector<int64_t> kSizes{0, 1, 3, 1000, 1000000};
const std::vector<ReduceOp> kOps{ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::product};

// Calls body(dtype, n) for all types and sizes.
template <class Body>
void for_each_case(Communicator& comm, Body body) {
  for (const auto dtype : all_dtypes()) {
    for (const int64_t n : kSizes) {
      SCOPED_TRACE(label(comm, dtype, n));
      body(dtype, n);
    }
  }
}

at::Tensor unset(int64_t n, at::ScalarType dtype) {
  return at::zeros({n}, dtype);
}

TEST(Collectives, AllReduce) {
  on_ranks([](Communicator& comm) {
    for_each_case(comm, [&](at::ScalarType dtype, int64_t n) {
      for (const ReduceOp op : kOps) {
        const auto in = contribution(comm.rank(), n, dtype);
        const auto expected = reduced(comm.size(), n, dtype, op);
        auto out = unset(n, dtype);
        comm.all_reduce(out, in, op);
        EXPECT_TRUE(at::equal(out, expected));
        EXPECT_TRUE(at::equal(in, contribution(comm.rank(), n, dtype)));
        auto inout = in.clone();
        comm.all_reduce(inout, inout, op);
        EXPECT_TRUE(at::equal(inout, expected));
        if (n > 1000) break;
      }
    });
  });
}

TEST(Collectives, ReduceScatter) {
  on_ranks([](Communicator& comm) {
    for_each_case(comm, [&](at::ScalarType dtype, int64_t n) {
      const int64_t total = n * comm.size();
      for (const ReduceOp op : kOps) {
        const auto expected = part_of(reduced(comm.size(), total, dtype, op), comm.rank(), comm.size());
        auto out = unset(n, dtype);
        comm.reduce_scatter(out, contribution(comm.rank(), total, dtype), op);
        EXPECT_TRUE(at::equal(out, expected));
        auto buffer = contribution(comm.rank(), total, dtype).clone();
        comm.reduce_scatter(part_of(buffer, comm.rank(), comm.size()), buffer, op);
        EXPECT_TRUE(at::equal(part_of(buffer, comm.rank(), comm.size()), expected));
        if (n > 1000) break;
      }
    });
  });
}

TEST(Collectives, AllGather) {
  on_ranks([](Communicator& comm) {
    for_each_case(comm, [&](at::ScalarType dtype, int64_t n) {
      const auto in = contribution(comm.rank(), n, dtype);
      auto out = unset(n * comm.size(), dtype);
      comm.all_gather(out, in);
      auto buffer = unset(n * comm.size(), dtype);
      part_of(buffer, comm.rank(), comm.size()).copy_(in);
      comm.all_gather(buffer, part_of(buffer, comm.rank(), comm.size()));
      for (int r = 0; r < comm.size(); ++r) {
        EXPECT_TRUE(at::equal(part_of(out, r, comm.size()), contribution(r, n, dtype)));
        EXPECT_TRUE(at::equal(part_of(buffer, r, comm.size()), contribution(r, n, dtype)));
      }
    });
  });
}

TEST(Collectives, Broadcast) {
  on_ranks([](Communicator& comm) {
    for_each_case(comm, [&](at::ScalarType dtype, int64_t n) {
      for (int root = 0; root < comm.size(); ++root) {
        auto inout = comm.rank() == root ? contribution(root, n, dtype).clone() : unset(n, dtype);
        comm.broadcast(inout, root);
        EXPECT_TRUE(at::equal(inout, contribution(root, n, dtype)));
      }
    });
  });
}

TEST(Collectives, Reduce) {
  on_ranks([](Communicator& comm) {
    const int root = comm.size() - 1;
    for_each_case(comm, [&](at::ScalarType dtype, int64_t n) {
      for (const ReduceOp op : kOps) {
        const auto in = contribution(comm.rank(), n, dtype);
        auto out = comm.rank() == root ? unset(n, dtype) : at::Tensor();
        comm.reduce(out, in, root, op);
        auto inout = in.clone();
        comm.reduce(inout, inout, root, op);
        EXPECT_TRUE(at::equal(inout, comm.rank() == root ? reduced(comm.size(), n, dtype, op) : in));
        if (out.defined()) {
          EXPECT_TRUE(at::equal(out, inout));
        }
        if (n > 1000) break;
      }
    });
  });
}

TEST(Collectives, GatherAndScatter) {
  on_ranks([](Communicator& comm) {
    const int size = comm.size(), root = size / 2;
    for_each_case(comm, [&](at::ScalarType dtype, int64_t n) {
      auto all = comm.rank() == root ? unset(n * size, dtype) : at::Tensor();
      comm.gather(all, contribution(comm.rank(), n, dtype), root);
      if (all.defined()) {
        for (int r = 0; r < size; ++r) EXPECT_TRUE(at::equal(part_of(all, r, size), contribution(r, n, dtype)));
      }
      auto mine = unset(n, dtype);
      comm.scatter(mine, all, root);
      EXPECT_TRUE(at::equal(mine, contribution(comm.rank(), n, dtype)));
    });
  });
}

TEST(Collectives, AllToAllEqual) {
  on_ranks([](Communicator& comm) {
    const int size = comm.size(), rank = comm.rank();
    for_each_case(comm, [&](at::ScalarType dtype, int64_t n) {
      auto out = unset(n * size, dtype);
      comm.all_to_all(out, contribution(rank, n * size, dtype));
      for (int r = 0; r < size; ++r) {
        EXPECT_TRUE(at::equal(part_of(out, r, size), part_of(contribution(r, n * size, dtype), rank, size)));
      }
    });
  });
}

// Rank r gives (r + 2 * s) % 4 rows of 5 columns, all equal to 10 r + s, to rank s: some parts are empty.
TEST(Collectives, AllToAllUnequalSplitsOfRows) {
  on_ranks([](Communicator& comm) {
    const auto rows = [](int from, int to) { return int64_t{(from + 2 * to) % 4}; };
    std::vector<int64_t> in_splits, out_splits;
    std::vector<at::Tensor> in{at::empty({0, 5})}, expected{at::empty({0, 5})};
    for (int r = 0; r < comm.size(); ++r) {
      in_splits.push_back(rows(comm.rank(), r));
      out_splits.push_back(rows(r, comm.rank()));
      in.push_back(at::full({in_splits.back(), 5}, 10 * comm.rank() + r));
      expected.push_back(at::full({out_splits.back(), 5}, 10 * r + comm.rank()));
    }
    const auto wanted = at::cat(expected);
    auto out = at::zeros_like(wanted);
    comm.all_to_all(out, at::cat(in), out_splits, in_splits);
    EXPECT_TRUE(at::equal(out, wanted)) << out << wanted;
  });
}

TEST(Collectives, SendRecvAroundARing) {
  on_ranks([](Communicator& comm) {
    if (comm.size() == 1) return;
    const int next = (comm.rank() + 1) % comm.size(), previous = (comm.rank() + comm.size() - 1) % comm.size();
    for_each_case(comm, [&](at::ScalarType dtype, int64_t n) {
      auto received = unset(n, dtype);
      // A send may wait for its receiver, so one rank has to start with receiving.
      if (comm.rank() > 0) comm.send(contribution(comm.rank(), n, dtype), next);
      comm.recv(received, previous);
      if (comm.rank() == 0) comm.send(contribution(comm.rank(), n, dtype), next);
      EXPECT_TRUE(at::equal(received, contribution(previous, n, dtype)));
    });
  });
}

TEST(Collectives, BarrierHoldsEverybodyUntilTheLastOne) {
  on_ranks([](Communicator& comm) {
    for (int late = 0; late < comm.size(); ++late) {
      const auto start = std::chrono::steady_clock::now();
      comm.barrier();
      if (comm.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      comm.barrier();
      EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(late == comm.rank() ? 30 : 0));
      auto arrived = at::full({1}, comm.rank() == late ? 1 : 0);
      comm.all_reduce(arrived, arrived);
      EXPECT_EQ(arrived.item<float>(), 1);
    }
  });
}

TEST(Collectives, ValuesOfAllRanksInRankOrder) {
  on_ranks([](Communicator& comm) {
    const Value mine(Value::Table{{"rank", comm.rank()}, {"name", std::string(static_cast<size_t>(comm.rank()) * 100, 'x')}});
    const auto values = comm.all_gather_values(mine);
    ASSERT_EQ(values.size(), static_cast<size_t>(comm.size()));
    for (int r = 0; r < comm.size(); ++r) {
      const auto& table = *values[static_cast<size_t>(r)].get_if<Value::Table>();
      EXPECT_EQ(*table.at("rank").get_if<int64_t>(), r);
      EXPECT_EQ(table.at("name").get_if<std::string>()->size(), static_cast<size_t>(r) * 100);
    }
  });
}

// The reduction has more chunks than the two in flight at once, and its last chunk is shorter.
TEST(Collectives, LongReductionsArePipelined) {
  on_ranks([](Communicator& comm) {
    const int64_t n = 5 * 1000 * 1000 + 7;
    auto inout = contribution(comm.rank(), n, at::kFloat).clone();
    comm.all_reduce(inout, inout);
    EXPECT_TRUE(at::equal(inout, reduced(comm.size(), n, at::kFloat, ReduceOp::sum)));
  });
}

TEST(Collectives, AllocatedMemoryIsZeroAndCommunicates) {
  on_ranks([](Communicator& comm) {
    auto buffer = comm.allocate({3, 4}, at::kDouble);
    EXPECT_EQ(buffer.sizes(), at::IntArrayRef({3, 4}));
    EXPECT_EQ(buffer.abs().sum().item<double>(), 0);
    buffer.add_(comm.rank() + 1);
    comm.all_reduce(buffer, buffer);
    EXPECT_TRUE(buffer.eq(comm.size() * (comm.size() + 1) / 2).all().item<bool>());
  });
}

}  // namespace

}  // namespace zt::test
