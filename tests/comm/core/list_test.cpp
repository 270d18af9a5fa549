// List variants give the same results as one call each.
#include <gtest/gtest.h>

#include "comm/support/ranks.h"

namespace zt::test {

namespace {

// Small tensors that are packed, an empty one, and two that are long enough to be sent alone.
const std::vector<int64_t> kLengths{3, 0, 1000, 200000, 1, 300000, 17};

TEST(Lists, AllReduce) {
  on_ranks([](Communicator& comm) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
      std::vector<at::Tensor> tensors;
      for (const int64_t n : kLengths) tensors.push_back(contribution(comm.rank(), n, dtype).clone());
      comm.all_reduce(tensors, ReduceOp::sum, Async::yes).wait();
      for (size_t i = 0; i < kLengths.size(); ++i) {
        EXPECT_TRUE(at::equal(tensors[i], reduced(comm.size(), kLengths[i], dtype, ReduceOp::sum)))
            << label(comm, dtype, kLengths[i]);
      }
    }
  });
}

TEST(Lists, ReduceScatter) {
  on_ranks([](Communicator& comm) {
    std::vector<at::Tensor> out, in;
    for (const int64_t n : kLengths) {
      in.push_back(contribution(comm.rank(), n * comm.size(), at::kFloat).clone());
      out.push_back(n % 2 == 0 ? at::zeros({n}) : part_of(in.back(), comm.rank(), comm.size()));
    }
    comm.reduce_scatter(out, in, ReduceOp::max);
    for (size_t i = 0; i < kLengths.size(); ++i) {
      const auto whole = reduced(comm.size(), kLengths[i] * comm.size(), at::kFloat, ReduceOp::max);
      EXPECT_TRUE(at::equal(out[i], part_of(whole, comm.rank(), comm.size()))) << kLengths[i];
    }
  });
}

TEST(Lists, AllGather) {
  on_ranks([](Communicator& comm) {
    std::vector<at::Tensor> out, in;
    for (const int64_t n : kLengths) {
      out.push_back(at::zeros({n * comm.size()}, at::kInt));
      in.push_back(n % 2 == 0 ? contribution(comm.rank(), n, at::kInt) : part_of(out.back(), comm.rank(), comm.size()));
      if (n % 2 != 0) in.back().copy_(contribution(comm.rank(), n, at::kInt));
    }
    comm.all_gather(out, in);
    for (size_t i = 0; i < kLengths.size(); ++i) {
      for (int r = 0; r < comm.size(); ++r) {
        EXPECT_TRUE(at::equal(part_of(out[i], r, comm.size()), contribution(r, kLengths[i], at::kInt))) << kLengths[i];
      }
    }
  });
}

TEST(Lists, NothingAndOneTensor) {
  on_ranks([](Communicator& comm) {
    comm.all_reduce(std::vector<at::Tensor>{});
    auto tensor = at::ones({5});
    comm.all_reduce(std::vector<at::Tensor>{tensor});
    EXPECT_TRUE(tensor.eq(comm.size()).all().item<bool>());
  });
}

}  // namespace

}  // namespace zt::test
