// Buffers from Communicator::allocate: every collective that may handle them differently, in and out of place, alone and together
// with private buffers.
#include <gtest/gtest.h>

#include <fstream>

#include "comm/support/ranks.h"

namespace zt::test {

namespace {

const std::vector<int64_t> kWindowSizes{0, 1, 3, 1000, 100000, 1000001};
const std::vector<at::ScalarType> kTypes{at::kFloat, at::kBFloat16, at::kLong, at::kByte};

at::Tensor in_window(Communicator& comm, const at::Tensor& values) {
  return comm.allocate(values.sizes(), values.scalar_type()).copy_(values);
}

int64_t shared_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    if (word != "RssShmem:") continue;
    int64_t kilobytes = 0;
    file >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

template <class Body>
void for_each_window_case(const Body& body) {
  on_ranks([&](Communicator& comm) {
    for (const auto dtype : kTypes) {
      for (const int64_t n : kWindowSizes) {
        SCOPED_TRACE(label(comm, dtype, n));
        body(comm, dtype, n);
      }
    }
  });
}

TEST(Windows, AllReduce) {
  for_each_window_case([](Communicator& comm, at::ScalarType dtype, int64_t n) {
    const auto in = in_window(comm, contribution(comm.rank(), n, dtype));
    const auto expected = reduced(comm.size(), n, dtype, ReduceOp::sum);
    const auto out = comm.allocate({n}, dtype);
    comm.all_reduce(out, in);
    EXPECT_TRUE(at::equal(out, expected));
    EXPECT_TRUE(at::equal(in, contribution(comm.rank(), n, dtype)));
    const auto half = at::zeros({n}, dtype);  // only one of the two is shared
    comm.all_reduce(half, in);
    EXPECT_TRUE(at::equal(half, expected));
    comm.all_reduce(in, in);
    EXPECT_TRUE(at::equal(in, expected));
  });
}

TEST(Windows, SharedOnOneRankOnly) {
  for_each_window_case([](Communicator& comm, at::ScalarType dtype, int64_t n) {
    auto mine = in_window(comm, contribution(comm.rank(), n, dtype));
    if (comm.rank() > 0) mine = mine.clone();
    comm.all_reduce(mine, mine);
    EXPECT_TRUE(at::equal(mine, reduced(comm.size(), n, dtype, ReduceOp::sum)));
  });
}

TEST(Windows, ReduceScatterAndAllGather) {
  for_each_window_case([](Communicator& comm, at::ScalarType dtype, int64_t n) {
    const int64_t total = n * comm.size();
    const auto sum = reduced(comm.size(), total, dtype, ReduceOp::sum);
    const auto buffer = in_window(comm, contribution(comm.rank(), total, dtype));
    const auto out = at::zeros({n}, dtype);
    comm.reduce_scatter(out, buffer);
    EXPECT_TRUE(at::equal(out, part_of(sum, comm.rank(), comm.size())));
    const auto part = part_of(buffer, comm.rank(), comm.size());
    comm.reduce_scatter(part, buffer);
    EXPECT_TRUE(at::equal(part, out));
    comm.all_gather(buffer, part);
    EXPECT_TRUE(at::equal(buffer, sum));
    const auto gathered = at::zeros({total}, dtype);
    comm.all_gather(gathered, part);
    EXPECT_TRUE(at::equal(gathered, sum));
  });
}

TEST(Windows, RootedOperations) {
  for_each_window_case([](Communicator& comm, at::ScalarType dtype, int64_t n) {
    const int root = comm.size() - 1;
    const auto inout = in_window(comm, contribution(comm.rank(), n, dtype));
    const auto sum = at::zeros({n}, dtype);
    comm.reduce(comm.rank() == root ? sum : at::Tensor(), inout, root);
    if (comm.rank() == root) {
      EXPECT_TRUE(at::equal(sum, reduced(comm.size(), n, dtype, ReduceOp::sum)));
    }
    comm.broadcast(inout, root);
    EXPECT_TRUE(at::equal(inout, contribution(root, n, dtype)));
    const auto all = in_window(comm, contribution(0, n * comm.size(), dtype));
    comm.scatter(inout, comm.rank() == root ? all : at::Tensor(), root);
    EXPECT_TRUE(at::equal(inout, part_of(contribution(0, n * comm.size(), dtype), comm.rank(), comm.size())));
  });
}

TEST(Windows, AllToAllWithSplits) {
  for_each_window_case([](Communicator& comm, at::ScalarType dtype, int64_t n) {
    // Rank s gives n * r rows of its contribution to rank r, so rank 0 gets nothing.
    const int size = comm.size();
    std::vector<int64_t> in_splits, out_splits(static_cast<size_t>(size), n * comm.rank());
    int64_t rows = 0;
    for (int r = 0; r < size; ++r) rows += in_splits.emplace_back(n * r);
    const auto in = in_window(comm, contribution(comm.rank(), rows, dtype));
    const auto out = at::zeros({n * comm.rank() * size}, dtype);
    comm.all_to_all(out, in, out_splits, in_splits);
    for (int s = 0; s < size; ++s) {
      const int64_t begin = n * comm.rank() * (comm.rank() - 1) / 2;
      EXPECT_TRUE(at::equal(part_of(out, s, size), contribution(s, rows, dtype).narrow(0, begin, n * comm.rank())));
    }
  });
}

TEST(Windows, SendAndReceive) {
  for_each_window_case([](Communicator& comm, at::ScalarType dtype, int64_t n) {
    const auto mine = in_window(comm, contribution(comm.rank(), n, dtype));
    const auto got = comm.allocate({n}, dtype);
    if (comm.size() == 1) return;
    const int next = (comm.rank() + 1) % comm.size(), before = (comm.rank() + comm.size() - 1) % comm.size();
    if (comm.rank() == 0) comm.recv(got, before);
    comm.send(mine, next);
    if (comm.rank() != 0) comm.recv(got, before);
    EXPECT_TRUE(at::equal(got, contribution(before, n, dtype)));
  });
}

TEST(Windows, OfSeveralCommunicators) {
  on_ranks([](Communicator& comm) {
    const auto other = comm.duplicate("other");
    for (const int64_t n : kWindowSizes) {
      const auto tensor = comm.allocate({n}, at::kFloat, {other.get(), &comm});
      for (Communicator* user : {&comm, other.get()}) {
        tensor.copy_(contribution(comm.rank(), n, at::kFloat));
        user->all_reduce(tensor, tensor);
        EXPECT_TRUE(at::equal(tensor, reduced(comm.size(), n, at::kFloat, ReduceOp::sum))) << label(*user, at::kFloat, n);
      }
    }
  });
}

TEST(Windows, MemoryIsZeroAndGoesBack) {
  on_ranks([](Communicator& comm) {
    constexpr int64_t kBytes = 16 << 20;
    const int64_t before = shared_bytes();
    for (int round = 0; round < 20; ++round) {
      const auto tensor = comm.allocate({kBytes / 4}, at::kFloat);
      EXPECT_EQ(tensor[12345].item<float>(), 0);
      tensor.fill_(comm.rank() + 1);
      comm.all_reduce(tensor, tensor);
      EXPECT_EQ(tensor[-1].item<float>(), static_cast<float>(comm.size() * (comm.size() + 1) / 2));
      comm.barrier();
    }
    // If the ranks are threads, this one process holds all windows, and every rank maps each of them.
    EXPECT_LT(shared_bytes() - before, 10 * kBytes * comm.size());
  });
}

}  // namespace
}  // namespace zt::test
