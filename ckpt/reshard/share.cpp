#include "share.h"

#include <algorithm>
#include <map>
#include <set>

namespace zt::ckpt {

namespace {

using RankSet = std::vector<int32_t>;  // ascending, each rank once

struct HeldRegion {
  Region region;
  RankSet ranks;  // all ranks that hold it
};

struct Item {
  int32_t tensor;
  Region region;
  int64_t element_bytes;
};

// Returns the held elements as regions, divided wherever a holder's region begins or ends, so that each has one set of holders.
std::vector<HeldRegion> cut_at_ends(const HeldTensor::BoxHolders& held) {
  std::vector<HeldTensor::Holder> holders = held.holders;
  std::ranges::sort(holders, {}, &HeldTensor::Holder::first);
  std::vector<int64_t> ends;
  for (const auto& holder : holders) ends.insert(ends.end(), {holder.first, holder.first + holder.count});
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::vector<HeldRegion> regions;
  std::set<std::pair<int32_t, int64_t>> now;  // holders of the next region: rank, and the end of what it holds
  auto next = holders.begin();
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    std::erase_if(now, [&](const auto& holder) { return holder.second == ends[i]; });
    for (; next != holders.end() && next->first == ends[i]; ++next) now.insert({next->rank, next->first + next->count});
    if (now.empty()) continue;
    regions.push_back({{held.boxes, ends[i], ends[i + 1] - ends[i]}, {}});
    RankSet& ranks = regions.back().ranks;
    for (const auto& [rank, end] : now) {
      if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
    }
  }
  return regions;
}

bool overlap(const std::vector<Box>& a, const std::vector<Box>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Box& box) {
    return std::any_of(b.begin(), b.end(), [&](const Box& other) { return overlaps(box, other); });
  });
}

void append_boxes(const Region& region, std::vector<Box>& out) {
  for (PlacedBox& placed : region_boxes(region)) out.push_back(std::move(placed.box));
}

// Returns all held elements, each in exactly one region.
std::vector<HeldRegion> disjoint_regions(const HeldTensor& tensor) {
  std::vector<std::vector<HeldRegion>> held;  // parallel to tensor.by_boxes
  for (const auto& holders : tensor.by_boxes) held.push_back(cut_at_ends(holders));
  std::vector<HeldRegion> all;
  for (size_t i = 0; i < held.size(); ++i) {
    std::vector<Box> taken;
    for (size_t before = 0; before < i; ++before) {
      if (!overlap(tensor.by_boxes[before].boxes, tensor.by_boxes[i].boxes)) continue;
      for (const HeldRegion& other : held[before]) append_boxes(other.region, taken);
    }
    for (HeldRegion& mine : held[i]) {
      std::vector<Box> boxes, rest;
      if (!taken.empty()) {
        append_boxes(mine.region, boxes);
        rest = rest_of(boxes, taken);
      }
      if (rest == boxes) {
        all.push_back(mine);
        continue;
      }
      for (Box& box : rest) {
        const int64_t count = box.numel();
        all.push_back({{{std::move(box)}, 0, count}, mine.ranks});
      }
    }
  }
  return all;
}

// Divides `bytes` bytes among `ranks` so that their loads become as equal as possible: ranks below a common level are filled up
// to it. Returns where each rank's part ends.
std::vector<int64_t> level(const RankSet& ranks, const std::vector<int64_t>& loads, int64_t bytes) {
  std::vector<int64_t> ascending;
  for (const int32_t rank : ranks) ascending.push_back(loads[rank]);
  std::sort(ascending.begin(), ascending.end());
  int64_t below = 0, sum = bytes;  // ranks below the level, and the bytes that they will have together
  for (const int64_t load : ascending) {
    if (below > 0 && load >= sum / below) break;
    sum += load;
    ++below;
  }
  const int64_t height = sum / below;
  int64_t extra = sum % below, end = 0;
  std::vector<int64_t> ends;
  for (const int32_t rank : ranks) {
    if (loads[rank] <= height) {
      end += height - loads[rank] + (extra > 0);
      extra -= extra > 0;
    }
    ends.push_back(end);
  }
  return ends;
}

// Returns the element nearest to byte `bytes` of an item at which the item may be divided.
int64_t nearest_boundary(const Item& item, int64_t bytes) {
  const int64_t unit = std::max<int64_t>(1, kShareUnit / item.element_bytes), count = item.region.count;
  if (bytes <= 0) return 0;
  if (bytes / item.element_bytes >= count) return count;
  const int64_t below = bytes / item.element_bytes / unit * unit, above = std::min(below + unit, count);
  return bytes - below * item.element_bytes <= above * item.element_bytes - bytes ? below : above;
}

class ShareAssigner {
 public:
  explicit ShareAssigner(int ranks) : loads_(ranks), shares_(ranks) {}

  // Divides the items, concatenated to one sequence of bytes, among the ranks in order.
  void assign(const RankSet& ranks, const std::vector<Item>& items) {
    int64_t bytes = 0;
    for (const Item& item : items) bytes += item.region.count * item.element_bytes;
    const std::vector<int64_t> ends = level(ranks, loads_, bytes);
    int64_t start = 0;
    size_t taker = 0;
    for (const Item& item : items) {
      for (int64_t done = 0; done < item.region.count;) {
        const int64_t cut = nearest_boundary(item, ends[taker] - start);
        if (cut > done) add_share(ranks[taker], item, done, cut);
        else ++taker;
        done = std::max(done, cut);
      }
      start += item.region.count * item.element_bytes;
    }
  }

  std::vector<std::vector<WriteShare>> shares() {
    for (auto& mine : shares_) std::ranges::stable_sort(mine, {}, &WriteShare::tensor);
    return std::move(shares_);
  }

 private:
  void add_share(int32_t rank, const Item& item, int64_t begin, int64_t end) {
    loads_[rank] += (end - begin) * item.element_bytes;
    shares_[rank].push_back({item.tensor, {item.region.boxes, item.region.first + begin, end - begin}});
  }

  std::vector<int64_t> loads_;  // bytes per rank
  std::vector<std::vector<WriteShare>> shares_;
};

}  // namespace

void HeldTensor::add(int32_t rank, const Region& region) {
  if (region.count == 0) return;
  auto same = std::ranges::find(by_boxes, region.boxes, &BoxHolders::boxes);
  if (same == by_boxes.end()) same = by_boxes.insert(same, {region.boxes, {}});
  same->holders.push_back({rank, region.first, region.count});
}

std::vector<std::vector<WriteShare>> share_writing(std::span<const HeldTensor> tensors, int ranks) {
  std::map<std::pair<size_t, RankSet>, std::vector<Item>> items;  // by the number of holders and the holders: small sets first
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (HeldRegion& held : disjoint_regions(tensors[i]))
      items[{held.ranks.size(), held.ranks}].push_back(
          {static_cast<int32_t>(i), std::move(held.region), tensors[i].element_bytes});
  }
  ShareAssigner assigner(ranks);
  for (const auto& [holders, theirs] : items) assigner.assign(holders.second, theirs);
  return assigner.shares();
}

}  // namespace zt::ckpt
