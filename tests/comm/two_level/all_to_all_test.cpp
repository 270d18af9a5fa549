// Ragged parts between threads that pretend to be on several machines.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <numeric>

#include "two_levels.h"

namespace zt::comm {

namespace {

// Returns the rows that each rank gives to each, [from][to]: some give or get nothing.
std::vector<std::vector<int64_t>> ragged(int size, uint64_t seed) {
  const auto generator = at::detail::createCPUGenerator(seed);
  const auto rows =
      at::randint(0, 40, {size, size}, generator, at::kLong) * at::randint(0, 3, {size, size}, generator, at::kLong).gt(0);
  rows[0].zero_();
  rows.select(1, size - 1).zero_();
  std::vector<std::vector<int64_t>> table;
  for (int from = 0; from < size; ++from) {
    const auto* first = rows.const_data_ptr<int64_t>() + static_cast<int64_t>(from) * size;
    table.emplace_back(first, first + size);
  }
  return table;
}

TEST(TwoLevels, RaggedAllToAllIsThatOfOneLevel) {
  on_nodes([](Communicator& two, Communicator& flat) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
      for (const uint64_t seed : {1, 2, 3}) {
        const auto rows = ragged(two.size(), seed);
        const std::vector<int64_t>& in_splits = rows[static_cast<size_t>(two.rank())];
        std::vector<int64_t> out_splits;
        for (const auto& from : rows) out_splits.push_back(from[static_cast<size_t>(two.rank())]);
        const auto total = [](const std::vector<int64_t>& splits) {
          return std::accumulate(splits.begin(), splits.end(), int64_t{0});
        };
        const auto in = at::arange(total(in_splits) * 5).add(1000 * two.rank()).to(dtype).view({-1, 5});
        const auto out = at::zeros({total(out_splits), 5}, dtype), expected = at::zeros_like(out);
        flat.all_to_all(expected, in, out_splits, in_splits);
        two.all_to_all(out, in, out_splits, in_splits, seed % 2 == 0 ? Async::yes : Async::no).wait();
        EXPECT_TRUE(at::equal(out, expected)) << c10::toString(dtype) << " seed " << seed;
      }
    }
  });
}

}  // namespace

}  // namespace zt::comm
