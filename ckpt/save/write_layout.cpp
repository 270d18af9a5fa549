#include "write_layout.h"

#include <map>
#include <nlohmann/json.hpp>

#include "reshard/share.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/reshard/reshard.h"

namespace zt::ckpt {

namespace {

using nlohmann::json;

// --- messages between ranks, as CBOR ---

std::string packed(const json& value) {
  std::string bytes;
  json::to_cbor(value, bytes);
  return bytes;
}

json json_of(const Region& region) {
  json boxes = json::array();
  for (const Box& box : region.boxes) boxes.push_back({box.begin, box.end});
  return {boxes, region.first, region.count};
}
Region region_of(const json& value) {
  Region region{{}, value[1], value[2]};
  for (const json& box : value[0]) region.boxes.push_back({box[0], box[1]});
  return region;
}

json json_of(const std::vector<Write>& writes) {
  json list = json::array();
  for (const Write& write : writes) list.push_back({write.tensor, write.part, write.first, json_of(write.region)});
  return list;
}
std::vector<Write> writes_of(const json& list) {
  std::vector<Write> writes;
  for (const json& write : list) writes.push_back({write[0], write[1], write[2], region_of(write[3])});
  return writes;
}

// --- the computation on rank 0 ---

// The regions that all ranks hold, per tensor.
class Holdings {
 public:
  void add(int rank, const json& parts) {
    int part = 0;
    for (const json& entry : parts) {
      const int tensor = number_of({entry[0], entry[1].get<at::ScalarType>(), entry[2], Value::from_json(entry[4]), {}}, rank);
      const Region region = region_of(entry[3]);
      held_[tensor].add(rank, region);
      parts_[{rank, tensor}].emplace_back(part++, region);
    }
  }

  std::vector<std::vector<Write>> share(int ranks) const {
    std::vector<std::vector<Write>> writes(ranks);
    const auto shares = share_writing(held_, ranks);
    for (int r = 0; r < ranks; ++r) {
      for (const WriteShare& share : shares[r]) add_writes(writes[r], share, parts_.at({r, share.tensor}));
    }
    return writes;
  }

  std::vector<SavedTensor> tensors;

 private:
  int number_of(const SavedTensor& tensor, int rank) {
    const auto [entry, is_new] = numbers_.emplace(tensor.name, static_cast<int>(tensors.size()));
    if (is_new) {
      tensors.push_back(tensor);
      held_.emplace_back().element_bytes = static_cast<int64_t>(c10::elementSize(tensor.dtype));
    }
    const SavedTensor& known = tensors[entry->second];
    if (known.dtype != tensor.dtype || known.shape != tensor.shape)
      misuse("'{}' is {} [{}] on rank {} and {} [{}] on another: one name means one tensor, the same on all ranks that have it",
             tensor.name, dtype_name(tensor.dtype), fmt::join(tensor.shape, ", "), rank, dtype_name(known.dtype),
             fmt::join(known.shape, ", "));
    return entry->second;
  }

  // Appends the writes of a share, which may lie in several of the rank's parts of the tensor.
  void add_writes(std::vector<Write>& writes, const WriteShare& share, const std::vector<std::pair<int, Region>>& parts) const {
    for (const auto& [part, held] : parts) {
      if (share.region.boxes != held.boxes) continue;
      if (share.region.first < held.first || share.region.first + share.region.count > held.first + held.count) continue;
      writes.push_back({share.tensor, part, share.region.first - held.first, share.region});
      return;
    }
    std::vector<Region> regions;
    for (const auto& [part, held] : parts) regions.push_back(held);
    for (const CopyRun& run : make_copy_list(tensors[share.tensor].shape, regions, share.region).runs) {
      for (int64_t t = 0; t < run.times; ++t) {
        const Region piece{share.region.boxes, share.region.first + run.to + t * run.to_stride, run.count};
        writes.push_back({share.tensor, parts[run.source].first, run.from + t * run.from_stride, piece});
      }
    }
  }

  std::map<std::string, int> numbers_;
  std::vector<HeldTensor> held_;
  std::map<std::pair<int, int>, std::vector<std::pair<int, Region>>> parts_;
};

}  // namespace

std::string structure_of(const Contents& contents) {
  json parts = json::array();
  for (const TensorPart& part : contents.parts)
    parts.push_back(
        {part.name, static_cast<int>(part.dtype()), part.shape, json_of(part.region), Value(part.attributes).to_json()});
  return packed(parts);
}

WriteLayout make_write_layout(const Ranks& ranks, const std::string& structure) {
  const auto all = ranks.gather(structure);
  WriteLayout layout;
  std::vector<std::string> answers(ranks.size());
  ranks.on_rank_zero([&] {
    Holdings holdings;
    for (int r = 0; r < ranks.size(); ++r) holdings.add(r, json::from_cbor(all[r]));
    layout.by_rank = holdings.share(ranks.size());
    layout.tensors = std::move(holdings.tensors);
    for (int r = 0; r < ranks.size(); ++r) answers[r] = packed(json_of(layout.by_rank[r]));
  });
  layout.writes = writes_of(json::from_cbor(ranks.scatter(answers)));
  return layout;
}

}  // namespace zt::ckpt
