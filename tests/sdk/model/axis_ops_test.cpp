// Communication with gradients, beside autograd of the same function of all ranks' tensors on one rank. All numbers are small
// integers, so sums are exact in every type and order.
#include "zt/model/axis_ops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/support/ranks.h"
#include "support/fake_context.h"
#include "support/message.h"

namespace zt::test {
namespace {

class RankContext final : public FakeContext {
 public:
  explicit RankContext(Communicator& comm) : comm_(comm) {}
  Communicator& comm(const std::string&) override { return comm_; }
  void sent(const std::string&, int64_t bytes, Pattern pattern) override {
    (pattern == Pattern::collective ? collective : all_to_all) += bytes;
  }

  int64_t collective = 0, all_to_all = 0;

 private:
  Communicator& comm_;
};

// Returns the same small integers on each rank, others for each `seed`.
at::Tensor numbers(at::IntArrayRef shape, int64_t seed, at::ScalarType dtype = at::kDouble) {
  const int64_t numel = at::empty(shape, at::TensorOptions(at::kMeta)).numel();
  return at::arange(numel, at::kLong).mul(7).add(11 * seed).remainder(5).sub(2).view(shape).to(dtype);
}

// One operation: what rank r gives to it, what all ranks' results are on one rank, and how the layer runs it.
struct Case {
  std::string name;
  std::function<at::Tensor(int rank)> input;
  std::function<at::Tensor(const std::vector<at::Tensor>& inputs, int rank)> wanted;
  std::function<at::Tensor(Context&, const at::Tensor&)> run;
  bool has_one_input = false;   // all ranks give one tensor, which the one-rank function reads once
  bool has_one_result = false;  // all ranks have one result, which the one-rank loss reads once
};

// The loss is the sum over ranks of the products of the results with some weights. Compares values and gradients.
void check(const Case& given, Communicator& comm) {
  SCOPED_TRACE(fmt::format("{} on rank {} of {}", given.name, comm.rank(), comm.size()));
  std::vector<at::Tensor> inputs;
  for (int r = 0; r < comm.size(); ++r) {
    const bool is_new = !given.has_one_input || inputs.empty();
    inputs.push_back(is_new ? given.input(r).requires_grad_(true) : inputs.front());
  }
  at::Tensor loss = at::zeros({}, at::kDouble), wanted;
  const auto weights = [&](const at::Tensor& result, int rank) {
    return numbers(result.sizes(), given.has_one_result ? 3 : 3 + rank, result.scalar_type());
  };
  for (int r = 0; r < comm.size(); ++r) {
    const at::Tensor result = given.wanted(inputs, r);
    if (r == comm.rank()) wanted = result.detach();
    if (r == 0 || !given.has_one_result) loss = loss + (result * weights(result, r)).sum().to(at::kDouble);
  }
  if (loss.requires_grad()) loss.backward();

  RankContext context(comm);
  const at::Tensor x = given.input(comm.rank()).requires_grad_(true);
  const at::Tensor result = given.run(context, x);
  ASSERT_TRUE(at::equal(result, wanted));
  (result * weights(result, comm.rank())).sum().backward();
  const at::Tensor& gradient = inputs[static_cast<size_t>(comm.rank())].grad();
  EXPECT_TRUE(at::equal(x.grad(), gradient.defined() ? gradient : at::zeros_like(x)));
  if (comm.size() == 1) {
    EXPECT_EQ(context.collective + context.all_to_all, 0);
    EXPECT_TRUE(result.is_same(x));
  }

  const at::Tensor on_meta = given.run(context, at::empty(x.sizes(), x.options().device(at::kMeta)).requires_grad_(true));
  EXPECT_EQ(on_meta.sizes(), wanted.sizes());
  if (comm.size() > 1) on_meta.sum().backward();
}

at::Tensor sum_of(const std::vector<at::Tensor>& inputs) {
  at::Tensor sum = inputs.front();
  for (size_t r = 1; r < inputs.size(); ++r) sum = sum + inputs[r];
  return sum;
}

std::vector<Case> cases(int ranks, std::vector<int64_t> shape, int64_t dim, at::ScalarType dtype) {
  const int64_t total = shape[static_cast<size_t>(dim)];
  const auto share = [=](int rank) { return share_of(total, ranks, rank); };
  const auto part = [=](const at::Tensor& x, int rank) { return x.narrow(dim, share(rank).begin, share(rank).count); };
  const auto same = [=](int) { return numbers(shape, 0, dtype); };
  const auto other = [=](int rank) { return numbers(shape, rank, dtype); };
  const auto cut = [=](int rank) { return part(numbers(shape, rank, dtype), rank).contiguous(); };
  const auto sum = [](const auto& inputs, int) { return sum_of(inputs); };
  const auto joined = [=](const auto& inputs, int) { return at::cat(inputs, dim); };
  return {
      {"copy_to", same, [](const auto& inputs, int) { return inputs.front(); },
       [](Context& context, const at::Tensor& x) { return copy_to(context, "tp", x); }, true},
      {"reduce_from", other, sum, [](Context& context, const at::Tensor& x) { return reduce_from(context, "tp", x); }, false,
       true},
      {"scatter_to", same, [=](const auto& inputs, int rank) { return part(inputs.front(), rank); },
       [=](Context& context, const at::Tensor& x) { return scatter_to(context, "tp", x, dim); }, true},
      {"gather_from alike", cut, joined,
       [=](Context& context, const at::Tensor& x) { return gather_from(context, "tp", x, dim, total, GatherUse::alike); }, false,
       true},
      {"gather_from in_parts", cut, joined,
       [=](Context& context, const at::Tensor& x) { return gather_from(context, "tp", x, dim, total, GatherUse::in_parts); }},
      {"reduce_scatter_to", other, [=](const auto& inputs, int rank) { return part(sum_of(inputs), rank); },
       [=](Context& context, const at::Tensor& x) { return reduce_scatter_to(context, "tp", x, dim - 3); }},
  };
}

TEST(AxisOps, AreTheFunctionsOfOneRank) {
  on_ranks([](Communicator& comm) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      for (const int64_t dim : {0, 1, 2}) {
        for (const int64_t total : {1, 2, 7, 12}) {  // of some ranks the share is empty, of some of another size
          std::vector<int64_t> shape{2, 3, 4};
          shape[static_cast<size_t>(dim)] = total;
          for (const Case& each : cases(comm.size(), shape, dim, dtype)) check(each, comm);
        }
        for (const Case& each :
             cases(comm.size(), dim == 0 ? std::vector<int64_t>{6, 2, 1} : std::vector<int64_t>{1, 8, 8}, dim, dtype))
          check(each, comm);
      }
    }
  });
}

// Equal shares that are not one after the other in memory, and large: one collective for each index of the dims before.
TEST(AxisOps, MoveLargeSharesToTheirPlaces) {
  on_ranks([](Communicator& comm) {
    for (const Case& each : cases(comm.size(), {3, 12, 8192}, 1, at::kDouble)) check(each, comm);
    for (const Case& each : cases(comm.size(), {2, 2, 12 << 12}, 2, at::kDouble)) check(each, comm);
  });
}

TEST(AxisOps, AllToAllJoinsOneDimAndCutsAnother) {
  on_ranks([](Communicator& comm) {
    for (const auto& [joined, cut] : std::vector<std::pair<int64_t, int64_t>>{{1, 2}, {2, 1}, {0, 2}, {2, 0}, {0, 1}}) {
      for (const auto& sizes : std::vector<std::vector<int64_t>>{{4, 8, 12}, {5, 7, 3}, {3, 2, 1}}) {
        const auto part = [&, ranks = comm.size()](const at::Tensor& x, int64_t dim, int rank) {
          const Share share = share_of(x.size(dim), ranks, rank);
          return x.narrow(dim, share.begin, share.count);
        };
        const int64_t total = sizes[static_cast<size_t>(joined)];
        check({fmt::format("all_to_all joins {} cuts {}", joined, cut),
               [&](int rank) { return part(numbers(sizes, rank), joined, rank).contiguous(); },
               [&](const auto& inputs, int rank) { return part(at::cat(inputs, joined), cut, rank); },
               [&](Context& context, const at::Tensor& x) { return all_to_all(context, "tp", x, joined, cut, total); }},
              comm);
      }
    }
  });
}

TEST(AxisOps, TakeWhatLiesElsewhereInMemory) {
  on_ranks([](Communicator& comm) {
    RankContext context(comm);
    const at::Tensor x = numbers({6, 4}, comm.rank());
    const at::Tensor sum = reduce_from(context, "tp", x.t());
    EXPECT_TRUE(at::equal(sum, reduce_from(context, "tp", x.t().contiguous())));
    EXPECT_TRUE(at::equal(reduce_scatter_to(context, "tp", x.t(), 0), scatter_to(context, "tp", sum, 0)));
  });
}

TEST(AxisOps, CountTheBytesOfRings) {
  on_ranks([](Communicator& comm) {
    const int64_t others = comm.size() - 1, ranks = comm.size();
    if (others == 0) return;
    const auto bytes_of = [&](const auto& run) {
      RankContext context(comm);
      run(context);
      return std::pair(context.collective, context.all_to_all);
    };
    const at::Tensor all = numbers({12, 5}, 0), mine = numbers({12 / ranks, 5}, 0);
    EXPECT_EQ(bytes_of([&](Context& c) { reduce_from(c, "tp", all); }), std::pair(2 * 60 * 8 * others / ranks, int64_t{0}));
    EXPECT_EQ(bytes_of([&](Context& c) { gather_from(c, "tp", mine, 0, 12, GatherUse::alike); }),
              std::pair(60 * 8 * others / ranks, int64_t{0}));
    EXPECT_EQ(bytes_of([&](Context& c) { reduce_scatter_to(c, "tp", all, 0); }), std::pair(60 * 8 * others / ranks, int64_t{0}));
    const at::Tensor heads = numbers({12 / ranks, 12}, 0);
    EXPECT_EQ(bytes_of([&](Context& c) { all_to_all(c, "tp", heads, 0, 1, 12); }),
              std::pair(int64_t{0}, 12 / ranks * 12 / ranks * 8 * others));
    EXPECT_EQ(bytes_of([&](Context& c) { copy_to(c, "tp", all); }), std::pair(int64_t{0}, int64_t{0}));
  });
}

TEST(AxisOps, RefuseOtherShares) {
  on_ranks([](Communicator& comm) {
    RankContext context(comm);
    const at::Tensor x = numbers({30, 2}, 0);
    EXPECT_SAYS(fmt::format("gather_from over 'tp': the share of 29 of rank {} of {}", comm.rank(), comm.size()),
                gather_from(context, "tp", x, 0, 29, GatherUse::alike));
    EXPECT_SAYS("scatter_to over 'tp': there is no dim 2", scatter_to(context, "tp", x, 2));
    EXPECT_SAYS("joined_dim and cut_dim are both 1", all_to_all(context, "tp", x, 1, 1, 2));
  });
}

}  // namespace
}  // namespace zt::test
