// The null backend stands for any rank of any world, alone.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "core/group.h"
#include "mesh/make_backend.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

std::shared_ptr<Communicator> rank_of(int rank, int size) {
  const World world{.rank = rank, .size = size, .threads = nullptr};
  return make_communicator(world, "null", whole_group(world, "dp"));
}

TEST(Null, KnowsItsPlace) {
  const auto comm = rank_of(100, 512);
  EXPECT_EQ(comm->rank(), 100);
  EXPECT_EQ(comm->size(), 512);
  EXPECT_EQ(comm->backend(), "null");
  EXPECT_EQ(comm->duplicate("x")->name(), "x");
}

TEST(Null, ResultsAreDefined) {
  const auto comm = rank_of(1, 3);
  const auto in = at::arange(6).to(at::kFloat);
  auto part = at::zeros({2});
  comm->reduce_scatter(part, in);
  EXPECT_TRUE(at::equal(part, in.narrow(0, 2, 2)));
  auto all = at::zeros({6});
  comm->all_gather(all, part, Async::yes).wait();
  EXPECT_TRUE(at::equal(all, part.repeat({3})));
  comm->all_gather(all, all.narrow(0, 2, 2));
  EXPECT_TRUE(at::equal(all, part.repeat({3})));
  comm->recv(all, 0);
  EXPECT_EQ(all.abs().sum().item<float>(), 0);
  comm->barrier();
}

TEST(Null, ChecksArgumentsAsTheOthersDo) {
  EXPECT_THROW(rank_of(0, 4)->all_gather(at::ones({4}), at::ones({2})), Misuse);
}

TEST(Null, TakesAnyDevice) {
  const auto meta = at::empty({8}, at::device(at::kMeta));
  rank_of(0, 4)->all_reduce(meta, meta);
}

TEST(Null, ValuesAreThisRanksOwn) {
  const auto values = rank_of(3, 5)->all_gather_values(Value("hello"));
  ASSERT_EQ(values.size(), 5u);
  EXPECT_EQ(*values[0].get_if<std::string>(), "hello");
}

}  // namespace

}  // namespace zt::comm
