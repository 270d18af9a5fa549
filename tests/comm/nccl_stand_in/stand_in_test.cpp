// Compares the nccl backend over the stand-in for NCCL with the local backend. Ranks are threads.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "backend/checked.h"
#include "host_streams.h"
#include "mesh/make_backend.h"
#include "nccl/nccl_backend.h"
#include "support/spawn.h"
#include "zt/comm/channel.h"

namespace zt::comm {
namespace {

NcclApi stand_in() {
  return {.get_version = ncclGetVersion,
          .get_unique_id = ncclGetUniqueId,
          .comm_init_rank = ncclCommInitRank,

          .comm_destroy = ncclCommDestroy,
          .comm_abort = ncclCommAbort,
          .comm_get_async_error = ncclCommGetAsyncError,
          .get_error_string = ncclGetErrorString,
          .mem_alloc = ncclMemAlloc,
          .mem_free = ncclMemFree,
          .group_start = ncclGroupStart,
          .group_end = ncclGroupEnd,
          .all_reduce = ncclAllReduce,
          .reduce_scatter = ncclReduceScatter,
          .all_gather = ncclAllGather,
          .broadcast = ncclBroadcast,
          .reduce = ncclReduce,
          .send = ncclSend,
          .recv = ncclRecv};
}

// One rank, with a communicator over the stand-in and one on the local backend.
struct Rank {
  explicit Rank(const World& world, SumOrder order = SumOrder::any) {
    const Group group{"dp", world.rank, ranks_of(world.size)};
    auto host = make_communicator(world, "local", group.renamed("dp/host"));
    nccl = std::make_unique<CheckedCommunicator>(make_nccl_backend(std::move(host), group, order, api, streams));
    local = make_communicator(world, "local", group.renamed("dp/local"));
  }
  static std::vector<int> ranks_of(int size) {
    std::vector<int> ranks(static_cast<size_t>(size));
    for (int r = 0; r < size; ++r) ranks[static_cast<size_t>(r)] = r;
    return ranks;
  }
  at::Tensor values(int64_t count, at::ScalarType dtype) const {
    return (at::arange(count) * (local->rank() + 3)).remainder(17).sub(6).to(dtype);
  }
  // Runs `call` on both, with a result of `count` elements, and compares the results.
  template <class Call>
  void compare(const char* what, int64_t count, at::ScalarType dtype, const Call& call) const {
    const at::Tensor got = at::zeros({count}, dtype), expected = at::zeros({count}, dtype);
    call(*nccl, got);
    call(*local, expected);
    EXPECT_TRUE(got.equal(expected)) << what << " of " << count << " " << dtype << " on rank " << local->rank() << " of "
                                     << size();
  }
  int64_t size() const { return local->size(); }

  NcclApi api = stand_in();
  std::shared_ptr<const StreamApi> streams = std::make_shared<test::stand_in::HostStreams>(at::kCPU);
  std::unique_ptr<Communicator> nccl;
  std::shared_ptr<Communicator> local;
};

void compare_all(const Rank& rank, int64_t n, at::ScalarType dtype) {
  const at::Tensor own = rank.values(n, dtype), all = rank.values(n * rank.size(), dtype);
  const int last = static_cast<int>(rank.size()) - 1;
  rank.compare("all_reduce", n, dtype, [&](Communicator& on, const at::Tensor& out) { on.all_reduce(out, own); });
  rank.compare("all_reduce in place", n, dtype, [&](Communicator& on, const at::Tensor& out) {
    out.copy_(own);
    on.all_reduce(out, out, ReduceOp::max);
  });
  rank.compare("reduce_scatter", n, dtype, [&](Communicator& on, const at::Tensor& out) { on.reduce_scatter(out, all); });
  rank.compare("all_gather", n * rank.size(), dtype, [&](Communicator& on, const at::Tensor& out) { on.all_gather(out, own); });
  rank.compare("broadcast", n, dtype, [&](Communicator& on, const at::Tensor& out) {
    out.copy_(own);
    on.broadcast(out, last);
  });
}

class StandIn : public testing::TestWithParam<int> {};

TEST_P(StandIn, MovesAndSumsAsTheLocalBackend) {
  test::spawn(GetParam(), [](const World& world) {
    const Rank any(world), fixed(world, SumOrder::fixed);
    for (const Rank* rank : {&any, &fixed}) {
      for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong}) {
        for (const int64_t n : {0, 1, 7, 200000}) compare_all(*rank, n, dtype);
      }
    }
  });
}

TEST_P(StandIn, ExchangesUnevenPartsAndDuplicates) {
  test::spawn(GetParam(), [](const World& world) {
    const Rank rank(world);
    const auto part = [&](int64_t from, int64_t to) { return (from * 3 + to) % 4 * 50000; };
    std::vector<int64_t> give, take;
    for (int64_t r = 0; r < world.size; ++r) {
      give.push_back(part(world.rank, r));
      take.push_back(part(r, world.rank));
    }
    const auto total = [](const std::vector<int64_t>& all) { return std::accumulate(all.begin(), all.end(), int64_t{0}); };
    const at::Tensor in = rank.values(total(give), at::kFloat);
    const auto twin = rank.nccl->duplicate("twin");
    for (Communicator* on : {rank.nccl.get(), twin.get()}) {
      const at::Tensor got = at::zeros({total(take)}), expected = at::zeros({total(take)});
      on->all_to_all(got, in, take, give);
      rank.local->all_to_all(expected, in, take, give);
      EXPECT_TRUE(got.equal(expected));
    }
  });
}

TEST_P(StandIn, CarriesMessagesInOrder) {
  test::spawn(GetParam(), [](const World& world) {
    const Rank rank(world);
    if (world.size == 1) return;
    if (world.rank > 1) return;
    const auto channel = rank.nccl->channel(0, 1, 4, "messages");
    for (int64_t i = 1; i < 9; ++i) {
      const at::Tensor sent = at::full({i * 30000}, static_cast<double>(i));
      if (world.rank == 0) {
        channel->send({sent}).wait();
      } else {
        auto received = channel->recv();
        received.work.wait();
        EXPECT_TRUE(received.tensors.at(0).equal(sent));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Comm, StandIn, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace zt::comm
