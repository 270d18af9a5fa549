// The all_to_all of two levels: first inside the nodes to the rank at the receiver's place, then across them.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <cstring>
#include <numeric>

#include "core/bytes.h"
#include "two_level/collectives.h"

namespace zt::comm {

namespace {

// Numbers of elements by two indices: [outer * inner].
struct Grid {
  std::vector<int64_t> counts;
  int outer = 0, inner = 0;

  int64_t at(int i, int j) const { return counts[static_cast<size_t>(i * inner + j)]; }
  int64_t total() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  Grid transposed() const {
    Grid grid{{}, inner, outer};
    for (int j = 0; j < inner; ++j) {
      for (int i = 0; i < outer; ++i) grid.counts.push_back(at(i, j));
    }
    return grid;
  }
  // Returns the sums over the inner index.
  std::vector<int64_t> sums() const {
    std::vector<int64_t> sums(static_cast<size_t>(outer), 0);
    for (int i = 0; i < outer; ++i) {
      for (int j = 0; j < inner; ++j) sums[static_cast<size_t>(i)] += at(i, j);
    }
    return sums;
  }
};

// Copies blocks of these sizes, which lie in the order of the outer index, to the order of the inner one.
void transpose_blocks(const at::Tensor& to, const at::Tensor& from, const Grid& sizes) {
  const size_t width = from.element_size();
  std::vector<size_t> begins(sizes.counts.size());
  size_t begin = 0;
  for (size_t block = 0; block < begins.size(); ++block) {
    begins[block] = begin;
    begin += static_cast<size_t>(sizes.counts[block]) * width;
  }
  char* next = bytes_of(to);
  const char* data = bytes_of(from);
  for (int j = 0; j < sizes.inner; ++j) {
    for (int i = 0; i < sizes.outer; ++i) {
      const size_t bytes = static_cast<size_t>(sizes.at(i, j)) * width;
      if (bytes > 0) std::memcpy(next, data + begins[static_cast<size_t>(i * sizes.inner + j)], bytes);
      next += bytes;
    }
  }
}

// Returns, by place on this node and node of the receiver, the elements that this rank passes on. `sent`: the elements that it
// gives, by place and node of the receiver.
Grid find_passed_on(const LevelSite& site, const Grid& sent) {
  const at::Tensor mine = at::tensor(sent.counts, at::kLong), all = at::empty_like(mine);
  site.step([&](Async async) { return site.levels.inside->all_to_all(all, mine, {}, {}, async); });
  const auto* received = all.const_data_ptr<int64_t>();
  return {{received, received + all.numel()}, site.places(), site.nodes()};
}

}  // namespace

void all_to_all(const LevelSite& site, const Operation& operation) {
  const Levels& levels = site.levels;
  const at::Tensor &in = operation.in[0], &out = operation.out[0];
  const Grid sent{operation.in_splits, site.nodes(), site.places()}, received{operation.out_splits, site.nodes(), site.places()};
  const Grid sent_by_place = sent.transposed(), passed_on = find_passed_on(site, sent_by_place);
  const int64_t count = passed_on.total();
  const at::Tensor memory = scratch(site, std::max(in.numel(), count) + count, in.scalar_type());
  const at::Tensor arrived = flat_part(memory, memory.numel() - count, count);
  const at::Tensor by_place = flat_part(memory, 0, in.numel()), by_node = flat_part(memory, 0, count);
  transpose_blocks(by_place, in, sent);
  site.step(
      [&](Async async) { return levels.inside->all_to_all(arrived, by_place, passed_on.sums(), sent_by_place.sums(), async); });
  transpose_blocks(by_node, arrived, passed_on);
  site.step([&](Async async) {
    return levels.across->all_to_all(flat_part(out, 0, out.numel()), by_node, received.sums(), passed_on.transposed().sums(),
                                     async);
  });
}

}  // namespace zt::comm
