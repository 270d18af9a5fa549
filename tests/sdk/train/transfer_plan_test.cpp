// Plans of transfers and the moves by them, on threads as ranks: tensors of random shapes, of which ranks hold and want random
// parts. The values are the elements' numbers.
#include "train/transfer/transfer_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "comm/support/ranks.h"
#include "providers.h"
#include "sdk/reshard/layouts.h"
#include "support/exhaustive.h"
#include "train/transfer/transfer_packing.h"
#include "train/transfer/transfer_rounds.h"
#include "zt/base/tensor.h"

namespace zt::test {
namespace {

using Shape = std::vector<int64_t>;

// What ranks hold of a tensor, and what each wants of it.
struct Job {
  Shape shape;
  std::vector<Region> held, wanted;
  at::ScalarType from = at::kDouble, travels = at::kDouble, to = at::kDouble;
};

// Returns a random one of the usual ways to divide a tensor among ranks.
std::vector<Region> random_layout(Dice& dice, const Shape& shape, int64_t ranks) {
  const int64_t kind = dice(4), groups = ranks % 2 == 0 && dice(2) == 0 ? 2 : 1;
  const int64_t members = ranks / groups;
  std::vector<Region> part(members, whole_region(shape));
  if (kind == 1) part = flat(shape, members);
  if (kind == 2 && !shape.empty()) part = along(shape, static_cast<size_t>(dice(static_cast<int64_t>(shape.size()))), members);
  if (kind == 3) {  // one of the ranks has all
    const int64_t owner = dice(members);
    for (int64_t r = 0; r < members; ++r) part[r] = r == owner ? whole_region(shape) : Region();
  }
  std::vector<Region> all;
  for (int64_t group = 0; group < groups; ++group) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Job random_job(Dice& dice, int64_t ranks) {
  const Shape shape = random_shape(dice);
  Job job{shape, random_layout(dice, shape, ranks), random_layout(dice, shape, ranks)};
  for (Region& region : job.wanted) {
    if (dice(4) == 0) region = random_part(dice, random_boxes(dice, shape));
  }
  const std::vector<at::ScalarType> types{at::kDouble, at::kFloat, at::kBFloat16};
  job.from = types[static_cast<size_t>(dice(3))];
  job.to = types[static_cast<size_t>(dice(3))];
  job.travels = size_of(job.to) < size_of(job.from) ? job.to : job.from;
  return job;
}

TransferLane lane_of_job(const Job& job, int rank, int64_t most) {
  TransferLane lane{job.shape, size_of(job.travels), job.held, {}};
  const Region& wanted = job.wanted[rank];
  for (int64_t at = 0; at < wanted.count; at += most)
    lane.wanted.push_back({{wanted.boxes, wanted.first + at, std::min(most, wanted.count - at)}, at});
  return lane;
}

at::Tensor numbers(const Shape& shape, const Region& region, at::ScalarType dtype) {
  return at::tensor(elements_of(shape, region), at::kLong).to(dtype);
}

TEST(TransferPlan, MovesEachElementOnce) {
  on_ranks([](Communicator& comm) {
    const int ranks = comm.size(), rank = comm.rank();
    for (uint64_t seed = 0; seed < (is_exhaustive() ? 2000 : 150); ++seed) {
      Dice dice(seed);
      std::vector<Job> jobs;
      for (int64_t tensors = 1 + dice(4); tensors > 0; --tensors) jobs.push_back(random_job(dice, ranks));
      const int64_t most = 1 + dice(40), bucket = 256 + dice(4096);
      std::vector<TransferLane> lanes;
      std::vector<TransferEnds> ends;
      std::vector<at::Tensor> results;
      int64_t lacking = 0;  // bytes that this rank does not hold itself
      for (const Job& job : jobs) {
        lanes.push_back(lane_of_job(job, rank, most));
        results.push_back(at::full({job.wanted[rank].count}, -1, job.to));
        ends.push_back({job.travels, flat_source(numbers(job.shape, job.held[rank], job.from)), flat_target(results.back())});
        const std::vector<int64_t> own = elements_of(job.shape, job.held[rank]);
        const std::set<int64_t> is_own(own.begin(), own.end());
        for (const int64_t element : elements_of(job.shape, job.wanted[rank]))
          lacking += is_own.contains(element) ? 0 : size_of(job.travels);
      }
      const TransferPlan plan = make_transfer_plan(lanes, rank, ranks > 1 ? &comm : nullptr, bucket);
      FirstFailure failure;
      const MovedBytes moved = move_rounds(plan, ends, ranks > 1 ? &comm : nullptr, failure);
      failure.share(ranks > 1 ? &comm : nullptr);
      for (size_t i = 0; i < jobs.size(); ++i) {
        const at::Tensor wanted = numbers(jobs[i].shape, jobs[i].wanted[rank], jobs[i].from).to(jobs[i].to);
        ASSERT_TRUE(results[i].equal(wanted)) << "seed " << seed << ", tensor " << i << ", rank " << rank << " of " << ranks;
      }
      const at::Tensor sums = at::tensor({moved.sent, lacking}, at::kLong);
      comm.all_reduce(sums, sums).synchronize();
      ASSERT_EQ(sums[0].item<int64_t>(), sums[1].item<int64_t>()) << "seed " << seed << ": each rank gets what it lacks, once";
    }
  });
}

TEST(TransferPlan, RoundsFitTheBucket) {
  on_ranks([](Communicator& comm) {
    const Shape shape{64, 33};
    const std::vector<Region> held = flat(shape, comm.size()), wanted(comm.size(), whole_region(shape));
    const Job job{shape, held, wanted};
    const TransferPlan plan =
        make_transfer_plan({lane_of_job(job, comm.rank(), 16)}, comm.rank(), comm.size() > 1 ? &comm : nullptr, 2048);
    EXPECT_LE(plan.bucket_bytes, 2048);
    for (const TransferRound& round : plan.rounds) {
      int64_t bytes = 0;
      for (const auto* list : {&round.sent_bytes, &round.received_bytes}) {
        for (const int64_t each : *list) bytes += each;
      }
      EXPECT_LE(bytes, plan.bucket_bytes);
      EXPECT_TRUE(round.communicates || bytes == 0);
    }
  });
}

// Receivers that lack the same elements take them from different ranks that have them.
TEST(TransferPlan, ReceiversAreSpreadOverOwners) {
  on_ranks([](Communicator& comm) {
    if (comm.size() != 4) return;
    const Shape shape{8, 4};
    const std::vector<Region> half = along(shape, 0, 2);
    const Job job{shape, {half[0], half[0], half[1], half[1]}, std::vector<Region>(4, whole_region(shape))};
    const TransferPlan plan = make_transfer_plan({lane_of_job(job, comm.rank(), 1000)}, comm.rank(), &comm, 1 << 20);
    int64_t sent = 0;
    for (const auto& round : plan.rounds) {
      for (const auto& runs : round.sent) {
        for (const TransferRun& run : runs) sent += run.numel();
      }
    }
    EXPECT_EQ(sent, 16);
  });
}

TEST(TransferPlan, WhatFailsOnOneRankFailsOnAll) {
  on_ranks([](Communicator& comm) {
    const Job job{{16}, flat({16}, comm.size()), std::vector<Region>(comm.size(), whole_region({16}))};
    const TransferPlan plan =
        make_transfer_plan({lane_of_job(job, comm.rank(), 4)}, comm.rank(), comm.size() > 1 ? &comm : nullptr, 256);
    struct Broken final : TransferSource {
      at::Tensor elements(const TransferRun&) const override { throw Fault("no such file"); }
    };
    std::shared_ptr<const TransferSource> source = flat_source(numbers(job.shape, job.held[comm.rank()], at::kDouble));
    if (comm.rank() == comm.size() - 1) source = std::make_shared<Broken>();
    FirstFailure failure;
    move_rounds(plan, {{at::kDouble, source, flat_target(at::zeros({16}, at::kDouble))}}, comm.size() > 1 ? &comm : nullptr,
                failure);
    try {
      failure.share(comm.size() > 1 ? &comm : nullptr);
      FAIL() << "no rank has said why";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("no such file"), std::string::npos) << error.what();
    }
  });
}

TEST(TransferPlan, RowsOfPackedMatricesAreWholePanels) {
  register_gemm_providers();
  const PackSpec spec{.format = PackFormat::int8, .group = 32};
  const Shape shape{3, 40, 64};
  const int64_t bytes = packed_bytes(spec, 16, 64), of_matrix = packed_bytes(spec, 40, 64);
  const auto all = packed_rows(spec, shape, {0, 3 * of_matrix}, 16 * 64);
  ASSERT_EQ(all.size(), 9U);
  EXPECT_EQ(all[5].matrix, 1);
  EXPECT_EQ(all[5].first, 32);
  EXPECT_EQ(all[5].count, 8);
  EXPECT_EQ(all[5].byte, of_matrix + 2 * bytes);
  EXPECT_EQ(packed_rows(spec, shape, {0, 3 * of_matrix}, 1).size(), 9U) << "a panel at least";
  EXPECT_EQ(packed_rows(spec, shape, {0, 3 * of_matrix}, 1 << 20).size(), 3U) << "a matrix at most";
  const auto some = packed_rows(spec, shape, {of_matrix + bytes - 1, 2}, 16 * 64);
  ASSERT_EQ(some.size(), 2U) << "both panels of which a byte is wanted";
  EXPECT_EQ(some[1].first, 16);
  EXPECT_TRUE(packed_rows(spec, {0, 64}, {0, 0}, 1024).empty());
}

}  // namespace
}  // namespace zt::test
