// Wrong arguments throw Misuse on the rank that passes them, before data moves, with a helpful message.
#include <gtest/gtest.h>

#include "comm/support/ranks.h"
#include "support/message.h"
#include "zt/base/error.h"

namespace zt::test {

namespace {

TEST(Misuse, TensorsAreNamed) {
  on_ranks([](Communicator& comm) {
    const auto good = at::ones({4});
    EXPECT_SAYS("all_reduce on axis 'dp' (rank", comm.all_reduce(at::ones({4, 4}).t(), good));
    EXPECT_SAYS("'out' is float32[4, 4] on cpu, which is not contiguous",
                comm.all_reduce(at::ones({4, 4}).t(), at::ones({4, 4})));
    EXPECT_SAYS("'in' is not a tensor", comm.all_reduce(good, at::Tensor()));
    EXPECT_SAYS("'out' is float32[4] on cpu but 'in' is float64[4] on cpu", comm.all_reduce(good, at::ones({4}, at::kDouble)));
    EXPECT_SAYS("the same number of elements", comm.all_reduce(good, at::ones({5})));
    EXPECT_SAYS("cannot be reduced", comm.all_reduce(at::ones({1}, at::kComplexFloat), at::ones({1}, at::kComplexFloat)));
    EXPECT_SAYS("works on cpu memory", comm.all_reduce(at::empty({4}, at::kMeta), good));
    comm.barrier();
  });
}

TEST(Misuse, CountsShowTheArithmetic) {
  on_ranks([](Communicator& comm) {
    const int64_t wrong = 3 * comm.size() + 1;
    const std::string wanted =
        comm.size() == 1 ? "needs the same number" : fmt::format("needs {} ranks x 3 elements", comm.size());
    EXPECT_SAYS(wanted, comm.all_gather(at::ones({wrong}), at::ones({3})));
    EXPECT_SAYS(wanted, comm.reduce_scatter(at::ones({3}), at::ones({wrong})));
    if (comm.rank() == 0) {
      EXPECT_SAYS(wanted, comm.gather(at::ones({wrong}), at::ones({3}), 0));
    }
    if (comm.rank() == 0) {
      EXPECT_SAYS(wanted, comm.scatter(at::ones({3}), at::ones({wrong}), 0));
    }
    if (comm.rank() == 0) {
      EXPECT_SAYS("'out' is not a tensor", comm.gather(at::Tensor(), at::ones({3}), 0));
    }
    comm.barrier();
  });
}

TEST(Misuse, OverlapIsAllowedOnlyWhereItIsInPlace) {
  on_ranks([](Communicator& comm) {
    const auto buffer = at::ones({10 * comm.size() + 10});
    const auto slice = [&](int64_t begin, int64_t length) { return buffer.narrow(0, begin, length); };
    EXPECT_SAYS("may be 'out' itself", comm.all_reduce(slice(0, 8), slice(1, 8)));
    const int64_t off_by_one = 10 * comm.rank() + 1;
    EXPECT_SAYS("overlap in memory", comm.all_gather(slice(0, 10 * comm.size()), slice(off_by_one, 10)));
    EXPECT_SAYS("overlap in memory", comm.reduce_scatter(slice(off_by_one, 10), slice(0, 10 * comm.size())));
    EXPECT_SAYS("never in place", comm.all_to_all(slice(0, 10 * comm.size()), slice(0, 10 * comm.size())));
    comm.barrier();
  });
}

TEST(Misuse, RanksAndSplits) {
  on_ranks([](Communicator& comm) {
    const int size = comm.size();
    EXPECT_SAYS(fmt::format("root {} is not a rank of this axis: ranks are 0 to {}", size, size - 1),
                comm.broadcast(at::ones({1}), size));
    EXPECT_SAYS("root -1", comm.reduce(at::ones({1}), at::ones({1}), -1));
    EXPECT_SAYS("cannot be its own peer", comm.send(at::ones({1}), comm.rank()));
    EXPECT_SAYS("peer 99", comm.recv(at::ones({1}), 99));
    const std::vector<int64_t> ones(static_cast<size_t>(size), 1), more(static_cast<size_t>(size) + 1, 1);
    EXPECT_SAYS("one for each of", comm.all_to_all(at::ones({size}), at::zeros({size}), more, ones));
    EXPECT_SAYS("'in_splits' adds up to", comm.all_to_all(at::ones({size}), at::zeros({size + 1}), ones, ones));
    EXPECT_SAYS("cannot be negative",
                comm.all_to_all(at::ones({size}), at::zeros({size}), std::vector<int64_t>(ones.size(), -1), ones));
    if (size > 1) {
      EXPECT_SAYS("do not divide (remainder 1)", comm.all_to_all(at::ones({size + 1}), at::ones({size + 1})));
    }
    comm.barrier();
  });
}

TEST(Misuse, ShapesToAllocate) {
  on_ranks([](Communicator& comm) {
    EXPECT_SAYS("the shape {-1} holds -1: a size cannot be negative", comm.allocate({-1}, at::kFloat));
    EXPECT_SAYS("the shape {0, -3} holds -3", comm.allocate({0, -3}, at::kFloat));
    EXPECT_SAYS("larger than any memory", comm.allocate({int64_t{1} << 40, int64_t{1} << 40}, at::kFloat));
    EXPECT_SAYS("larger than any memory", comm.allocate({0, int64_t{1} << 62, int64_t{1} << 62}, at::kByte));
    EXPECT_SAYS("larger than any memory", comm.allocate({int64_t{1} << 61}, at::kFloat));
    EXPECT_EQ(comm.allocate({}, at::kFloat).numel(), 1);
    EXPECT_EQ(comm.allocate({0}, at::kFloat).numel(), 0);
    comm.barrier();
  });
}

TEST(Misuse, Lists) {
  on_ranks([](Communicator& comm) {
    const auto f = at::ones({1}), d = at::ones({1}, at::kDouble);
    EXPECT_SAYS("one call per type", comm.all_reduce({f, d}));
    EXPECT_SAYS("they go in pairs", comm.all_gather(std::vector<at::Tensor>{f}, std::vector<at::Tensor>{f, f}));
    EXPECT_SAYS("must be above 0", comm.set_timeout(std::chrono::milliseconds(0)));
    comm.barrier();
  });
}

}  // namespace

}  // namespace zt::test
