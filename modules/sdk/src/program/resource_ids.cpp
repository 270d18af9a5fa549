#include "resource_ids.h"

#include <algorithm>
#include <numeric>

namespace zt {

namespace {

constexpr int64_t kMostPieces = 1 << 16;

Resource whole(Resource resource) {
  resource.part = 0;
  resource.parts = 1;
  return resource;
}

}  // namespace

ResourceIds::ResourceIds(std::span<const Resources> used) {
  for (const Resources& resources : used) {
    for (const auto* list : {&resources.reads, &resources.writes, &resources.frees}) {
      for (const Resource& resource : *list) {
        int64_t& count = pieces_[whole(resource)].count;
        const int64_t together = std::lcm(count, int64_t{resource.parts});
        if (together <= kMostPieces) count = together;
      }
    }
  }
  for (auto& [resource, pieces] : pieces_) {
    pieces.first = size_;
    size_ += static_cast<int>(pieces.count);
  }
}

std::vector<int> ResourceIds::of(const std::vector<Resource>& resources) const {
  std::vector<int> ids;
  for (const Resource& resource : resources) {
    const Pieces& pieces = pieces_.at(whole(resource));
    // Slices that would need too many pieces are rounded outwards: they wait for each other more often than necessary.
    const int64_t begin = pieces.count * resource.part / resource.parts;
    const int64_t end = (pieces.count * (resource.part + 1) + resource.parts - 1) / resource.parts;
    for (int64_t piece = begin; piece < end; ++piece) ids.push_back(pieces.first + static_cast<int>(piece));
  }
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

std::vector<int> ResourceIds::of(const std::vector<Resource>& resources, const std::vector<int>& except) const {
  std::vector<int> ids = of(resources);
  std::erase_if(ids, [&](int id) { return std::ranges::binary_search(except, id); });
  return ids;
}

}  // namespace zt
