// Threads that pretend to be on several machines must get the same bits as on one level.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "comm/support/ranks.h"
#include "support/spawn.h"
#include "two_levels.h"

namespace zt::comm {

namespace {

using std::chrono::seconds;
using test::part_of;

constexpr int64_t kLongest = 8 * 70001;

// Returns numbers of very different size and both signs, [kLongest], so that another order of additions changes some bits.
at::Tensor wild_values(int rank) {
  const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(rank) + 1000);
  const auto exponents = at::randint(-6, 7, {kLongest}, generator, at::kDouble);
  return at::randn({kLongest}, generator, at::kDouble).mul(exponents.exp2());
}

// Returns the first n wild values of a rank. Floats get a NaN and infinities of both signs, integers are scaled up.
at::Tensor wild(int rank, int64_t n, at::ScalarType dtype) {
  static const std::vector<at::Tensor> values = [] {
    std::vector<at::Tensor> all;
    for (int r = 0; r < 8; ++r) all.push_back(wild_values(r));
    return all;
  }();
  const auto chosen = values[static_cast<size_t>(rank)].narrow(0, 0, n);
  if (!at::isFloatingType(dtype)) return chosen.mul(1e15).to(dtype);
  auto tensor = chosen.to(dtype, /*non_blocking=*/false, /*copy=*/true);
  if (n < 2000) return tensor;
  if (rank == 1) tensor[1500] = std::numeric_limits<double>::quiet_NaN();
  if (rank == 0 || rank == 2) tensor[1600] = (1 - rank) * std::numeric_limits<double>::infinity();
  return tensor;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

// The lengths: short ones, which go to `flat`; one that every number of ranks per node divides; and `longest`.
void for_each_case(int64_t longest,
                   const std::function<void(Communicator&, Communicator&, at::ScalarType, int64_t, ReduceOp)>& body) {
  on_nodes([&](Communicator& two, Communicator& flat) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kDouble}) {
      for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{1000}, longest}) {
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
          SCOPED_TRACE(fmt::format("{} n={} {}", c10::toString(dtype), n, name_of(op)));
          body(two, flat, dtype, n, op);
        }
      }
    }
  });
}

// Checks the test's data: only if another order gives other bits do equal bits prove the order.
TEST(TwoLevel, TheTestsValuesTellOrdersApart) {
  const auto sum = [](at::ScalarType dtype, std::initializer_list<at::Tensor> tensors) {
    auto total = at::zeros({40001}, dtype);
    for (const auto& tensor : tensors) total = total.add(tensor).to(dtype);
    return total;
  };
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto a = wild(0, 40001, dtype), b = wild(1, 40001, dtype), c = wild(2, 40001, dtype), d = wild(3, 40001, dtype);
    EXPECT_FALSE(same_bits(sum(dtype, {a, b, c, d}), sum(dtype, {sum(dtype, {a, b}), sum(dtype, {c, d})})));
  }
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    std::vector<at::Tensor> wide;
    for (int r = 0; r < 4; ++r) wide.push_back(wild(r, 40001, dtype).to(at::kFloat));
    const auto left = wide[0].add(wide[1]), right = wide[2].add(wide[3]);
    EXPECT_FALSE(same_bits(left.add(right).to(dtype), left.to(dtype).add(right.to(dtype)))) << "rounded at every node";
  }
}

TEST(TwoLevel, AllReduceHasTheBitsOfOneLevel) {
  for_each_case(70001, [](Communicator& two, Communicator& flat, at::ScalarType dtype, int64_t n, ReduceOp op) {
    const auto in = wild(two.rank(), n, dtype);
    const auto expected = at::zeros({n}, dtype), out = at::zeros({n}, dtype), inout = in.clone();
    flat.all_reduce(expected, in, op);
    two.all_reduce(out, in, op);
    EXPECT_TRUE(same_bits(out, expected));
    EXPECT_TRUE(same_bits(in, wild(two.rank(), n, dtype)));
    two.all_reduce(inout, inout, op);
    EXPECT_TRUE(same_bits(inout, expected));
  });
}

TEST(TwoLevel, ReduceScatterHasTheBitsOfOneLevel) {
  for_each_case(20001, [](Communicator& two, Communicator& flat, at::ScalarType dtype, int64_t n, ReduceOp op) {
    const auto in = wild(two.rank(), n * two.size(), dtype);
    const auto expected = at::zeros({n}, dtype), out = at::zeros({n}, dtype), buffer = in.clone();
    flat.reduce_scatter(expected, in, op);
    two.reduce_scatter(out, in, op);
    EXPECT_TRUE(same_bits(out, expected));
    EXPECT_TRUE(same_bits(in, wild(two.rank(), n * two.size(), dtype)));
    two.reduce_scatter(part_of(buffer, two.rank(), two.size()), buffer, op);
    EXPECT_TRUE(same_bits(part_of(buffer, two.rank(), two.size()), expected));
  });
}

TEST(TwoLevel, AllGatherIsInRankOrder) {
  for_each_case(40001, [](Communicator& two, Communicator&, at::ScalarType dtype, int64_t n, ReduceOp op) {
    if (op != ReduceOp::sum) return;
    const auto in = wild(two.rank(), n, dtype);
    const auto out = at::zeros({n * two.size()}, dtype), buffer = at::zeros({n * two.size()}, dtype);
    two.all_gather(out, in);
    part_of(buffer, two.rank(), two.size()).copy_(in);
    two.all_gather(buffer, part_of(buffer, two.rank(), two.size()));
    for (int r = 0; r < two.size(); ++r) EXPECT_TRUE(same_bits(part_of(out, r, two.size()), wild(r, n, dtype))) << r;
    EXPECT_TRUE(same_bits(buffer, out));
  });
}

TEST(TwoLevel, EveryTypeAndOperator) {
  test::spawn(4, [](const World& world) {
    const auto comm = two_levels(world, 2);
    constexpr int64_t n = 3001;
    for (const auto dtype : test::all_dtypes()) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
        SCOPED_TRACE(test::label(*comm, dtype, n));
        const auto inout = test::contribution(world.rank, n, dtype).clone();
        comm->all_reduce(inout, inout, op);
        EXPECT_TRUE(at::equal(inout, test::reduced(4, n, dtype, op)));
        const auto part = at::zeros({n}, dtype);
        comm->reduce_scatter(part, test::contribution(world.rank, 4 * n, dtype), op);
        EXPECT_TRUE(at::equal(part, part_of(test::reduced(4, 4 * n, dtype, op), world.rank, 4)));
      }
    }
  });
}

// Lists of small tensors that are packed, an empty one, and one long enough to be sent alone. Several lists are in flight.
TEST(TwoLevel, AsynchronousLists) {
  on_nodes([](Communicator& two, Communicator& flat) {
    const int size = two.size(), rank = two.rank();
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      std::vector<at::Tensor> sums, expected, parts, whole, gathered;
      for (const int64_t n : {3, 0, 1000, 140001, 17}) {
        sums.push_back(wild(rank, n, dtype));
        expected.push_back(sums.back().clone());
        whole.push_back(wild(rank, std::min<int64_t>(n, 30001) * size, dtype));
        parts.push_back(at::zeros({whole.back().numel() / size}, dtype));
        gathered.push_back(at::zeros_like(whole.back()));
      }
      flat.all_reduce(expected);
      const Work reduced = two.all_reduce(sums, ReduceOp::sum, Async::yes);
      const Work scattered = two.reduce_scatter(parts, whole, ReduceOp::sum, Async::yes);
      const Work all = two.all_gather(gathered, parts, Async::yes);
      for (const Work& work : {all, scattered, reduced}) work.wait();
      flat.all_reduce(whole);
      for (size_t i = 0; i < sums.size(); ++i) {
        EXPECT_TRUE(same_bits(sums[i], expected[i])) << i;
        EXPECT_TRUE(same_bits(gathered[i], whole[i])) << i;
      }
    }
  });
}

TEST(TwoLevel, WindowsFromAllocate) {
  on_nodes([](Communicator& two, Communicator& flat) {
    const int64_t n = 70001, total = n * two.size();
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const auto expected = wild(two.rank(), total, dtype);
      flat.all_reduce(expected, expected);
      const auto window = two.allocate({total}, dtype), other = two.allocate({total}, dtype);
      EXPECT_FALSE(window.any().item<bool>());
      window.copy_(wild(two.rank(), total, dtype));
      two.all_reduce(other, window);
      EXPECT_TRUE(same_bits(other, expected));
      const auto part = part_of(window, two.rank(), two.size());
      two.reduce_scatter(part, window);
      EXPECT_TRUE(same_bits(part, part_of(expected, two.rank(), two.size())));
      two.all_gather(window, part);
      EXPECT_TRUE(same_bits(window, expected));
      window.copy_(wild(two.rank(), total, dtype));
      two.all_reduce(window, window);
      EXPECT_TRUE(same_bits(window, expected));
    }
  });
}

TEST(TwoLevel, OtherOperations) {
  on_nodes([](Communicator& two, Communicator& flat) {
    const int size = two.size(), rank = two.rank(), root = size - 1;
    for (const int64_t n : {1, 5000}) {
      const auto mine = wild(rank, n, at::kFloat), all = wild(0, n * size, at::kFloat), expected = at::zeros({n}),
                 sum = at::zeros({n});
      two.reduce(sum, mine, root);
      flat.reduce(expected, mine, root);
      EXPECT_TRUE(same_bits(sum, expected));
      const auto gathered = at::zeros({n * size});
      two.gather(rank == root ? gathered : at::Tensor(), mine, root);
      if (rank == root) {
        EXPECT_TRUE(same_bits(part_of(gathered, 0, size), wild(0, n, at::kFloat)));
      }
      const auto got = at::zeros({n});
      two.scatter(got, rank == root ? all : at::Tensor(), root);
      EXPECT_TRUE(same_bits(got, part_of(all, rank, size)));
      // Around the ring; one rank has to receive first.
      if (rank > 0) two.send(mine, (rank + 1) % size);
      two.recv(got, (rank + size - 1) % size);
      if (rank == 0) two.send(mine, 1);
      EXPECT_TRUE(same_bits(got, wild((rank + size - 1) % size, n, at::kFloat)));
      two.broadcast(got, root);
      EXPECT_TRUE(same_bits(got, wild(root - 1, n, at::kFloat)));
    }
    // Splits count rows: every rank gives r + 1 rows to rank r.
    std::vector<int64_t> in_splits;
    for (int r = 0; r < size; ++r) in_splits.push_back(r + 1);
    const std::vector<int64_t> out_splits(static_cast<size_t>(size), rank + 1);
    const auto in = at::full({size * (size + 1) / 2, 3}, rank, at::kFloat), out = at::zeros({size * (rank + 1), 3});
    two.all_to_all(out, in, out_splits, in_splits, Async::yes).wait();
    EXPECT_TRUE(at::equal(out.select(1, 2), at::arange(size, at::kFloat).repeat_interleave(rank + 1)));
    two.barrier();
  });
}

TEST(TwoLevel, DuplicatesAndNames) {
  test::spawn(4, [](const World& world) {
    const auto comm = two_levels(world, 2), copy = comm->duplicate("up");
    EXPECT_EQ(comm->backend(), "two_level");
    EXPECT_EQ(copy->name(), "up");
    EXPECT_EQ(copy->rank(), world.rank);
    const auto a = at::ones({3000}), b = at::ones({3000});
    const Work work = copy->all_reduce(a, a, ReduceOp::sum, Async::yes);
    comm->all_reduce(b, b);
    work.wait();
    EXPECT_TRUE(at::equal(a, b) && a[0].item<float>() == 4);
  });
}

// The sums of three ranks per node are not subtrees: the bits differ, within the bound for any two orders of additions.
TEST(TwoLevel, AnyOrderStaysWithinTheBound) {
  test::spawn(6, [](const World& world) {
    const auto comm = two_levels(world, 3, SumOrder::any), flat = one_level(world);
    constexpr int64_t n = 1400;  // without the infinities
    const auto in = wild(world.rank, n, at::kFloat);
    const auto sum = at::zeros({n}), expected = at::zeros({n}), size = in.abs();
    comm->all_reduce(sum, in);
    flat->all_reduce(expected, in);
    flat->all_reduce(size, size);
    EXPECT_FALSE(same_bits(sum, expected));
    const auto bound = size.to(at::kDouble).mul(5 * std::numeric_limits<float>::epsilon());
    EXPECT_TRUE(sum.to(at::kDouble).sub(expected).abs().le(bound).all().item<bool>());
    const auto half = at::ones({n * 2}, at::kBFloat16);
    comm->all_reduce(half, half);
    EXPECT_TRUE(half.eq(6).all().item<bool>());
  });
}

}  // namespace

}  // namespace zt::comm
