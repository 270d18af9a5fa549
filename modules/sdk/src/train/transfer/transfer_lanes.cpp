#include "transfer_lanes.h"

#include <algorithm>

#include "zt/base/tensor.h"

namespace zt {

namespace {

bool has_master_tensor(const TransferSide& side, int tensor) {
  return !side.store().is_buffer(tensor) && side.has_master(tensor);
}

// Returns which values a tensor of `dtype` takes.
ValuesOf source_for(const TransferSide& from, int tensor, at::ScalarType dtype) {
  const bool is_other = dtype != from.dtype(tensor, ValuesOf::layers);
  return is_other && has_master_tensor(from, tensor) ? ValuesOf::master : ValuesOf::layers;
}

// A lane of float values whose target has this dtype.
LaneKind lane_to(const TransferSide& from, const TensorPair& pair, LaneTarget target, at::ScalarType dtype) {
  const ValuesOf source = source_for(from, pair.from, dtype);
  const at::ScalarType given = from.dtype(pair.from, source);
  return {pair, source, target, size_of(dtype) < size_of(given) ? dtype : given};
}

const PackSpec& pack_of(const TransferSide& side, int tensor) {
  static const PackSpec plain;
  return side.store().is_buffer(tensor) ? plain : side.store().info(tensor).pack;
}

// A packed parameter is packed from the values of the most bits.
LaneKind lane_of_rows(const TransferSide& from, const TransferSide& to, const TensorPair& pair, int rank, int64_t most_bytes) {
  const ValuesOf source = has_master_tensor(from, pair.from) ? ValuesOf::master : ValuesOf::layers;
  LaneKind lane{pair, source, LaneTarget::packed_rows, from.dtype(pair.from, source)};
  const Region held = to.held(pair.to, ValuesOf::layers, rank);
  if (held.count == 0) return lane;
  const ParamInfo& info = to.store().info(pair.to);
  const Coord& coord = to.store().place().coord;
  Share bytes{held.first, held.count};
  if (to.has_owned_part_only(pair.to, rank)) {
    const OwnedRun run = to.store().owned(pair.to);
    bytes = {run.first, run.count};
  }
  if (bytes.count > 0) lane.rows = packed_rows(info.pack, info.local_shape(coord), bytes, most_bytes / size_of(lane.travels));
  return lane;
}

void add_wanted(const Region& region, int64_t at, int64_t most, std::vector<WantedPart>& parts) {
  for (int64_t done = 0; done < region.count; done += most)
    parts.push_back({{region.boxes, region.first + done, std::min(most, region.count - done)}, at + done});
}

// Returns what this rank wants of a lane that sets values or bytes as they are. Elements of the target are counted from the
// first one of what it holds there.
std::vector<WantedPart> wanted_of(const LaneKind& kind, const TransferSide& to, int rank, int64_t most) {
  std::vector<WantedPart> parts;
  const int tensor = kind.tensor.to;
  if (kind.target == LaneTarget::buffer) {
    add_wanted(to.held(tensor, ValuesOf::layers, rank), 0, most, parts);
    return parts;
  }
  const Region owned = to.held(tensor, ValuesOf::master, rank);
  const bool is_owned_only = to.has_owned_part_only(tensor, rank), has_master = to.has_master(tensor);
  if (kind.target == LaneTarget::outside_owned) {
    if (is_owned_only) return parts;
    const Region all = to.held(tensor, ValuesOf::layers, rank);
    const int64_t begin = owned.count > 0 ? owned.first : 0, end = owned.count > 0 ? owned.first + owned.count : 0;
    add_wanted({all.boxes, 0, begin}, 0, most, parts);
    add_wanted({all.boxes, end, all.count - end}, end, most, parts);
    return parts;
  }
  add_wanted(is_owned_only || has_master ? owned : to.held(tensor, ValuesOf::layers, rank), 0, most, parts);
  return parts;
}

std::vector<WantedPart> wanted_rows(const LaneKind& kind, const TransferSide& to, int rank) {
  std::vector<WantedPart> parts;
  const std::vector<int64_t> shape = to.store().info(kind.tensor.to).local_shape(to.store().place().coord);
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  for (const PackedRows& part : kind.rows) {
    const int64_t first = (part.matrix * rows + part.first) * columns, count = part.count * columns;
    parts.push_back({{to.boxes(kind.tensor.to, rank), first, count}, first, count * size_of(kind.travels)});
  }
  return parts;
}

std::shared_ptr<const TransferSource> source_of(const LaneKind& kind, const Store& from) {
  const int tensor = kind.tensor.from;
  if (kind.target == LaneTarget::buffer) {
    const at::Tensor& values = from.state().buffers[from.buffer_index(tensor)];
    return values.defined() ? flat_source(values.view({-1})) : nullptr;
  }
  const Unit& unit = from.unit_of(tensor);
  if (!unit.plan.held) return nullptr;
  if (kind.source == ValuesOf::master) return owned_source(from, tensor, "master");
  if (unit.owns_shard()) return owned_source(from, tensor, "shard");
  const ParamInfo& info = from.info(tensor);
  return flat_source(unit.full.narrow(0, info.offset, info.flat_numel(from.place().coord)));
}

std::shared_ptr<TransferTarget> target_of(const LaneKind& kind, const Store& to) {
  const int tensor = kind.tensor.to;
  if (kind.target == LaneTarget::buffer) {
    const at::Tensor& values = to.state().buffers[to.buffer_index(tensor)];
    return values.defined() ? flat_target(values.view({-1})) : nullptr;
  }
  const Unit& unit = to.unit_of(tensor);
  if (!unit.plan.held) return nullptr;
  if (kind.target == LaneTarget::packed_rows) return packing_target(to, tensor, kind.rows, kind.travels);
  const bool is_rest = kind.target == LaneTarget::outside_owned;
  if (!is_rest && unit.has_own_master) return owned_target(to, tensor, {"master", "shard"});
  if (unit.owns_shard() || unit.is_node_shared()) return is_rest ? nullptr : owned_target(to, tensor, {"shard"});
  const ParamInfo& info = to.info(tensor);
  return flat_target(unit.full.narrow(0, info.offset, info.flat_numel(to.place().coord)));
}

}  // namespace

bool are_packed_alike(const PackSpec& a, const PackSpec& b) {
  PackSpec same = b;
  same.activations = a.activations;  // no part of the bytes
  return a.format != PackFormat::plain && a == same;
}

Moves moves_of(const TransferSide& from, const TransferSide& to, const std::vector<TensorPair>& pairs,
               const std::vector<AdapterProduct>& merged, int rank, int64_t most_bytes) {
  Moves moves;
  for (const TensorPair& pair : pairs) {
    const std::string& name = from.store().tensors()[pair.from].name;
    const PackSpec &given = pack_of(from, pair.from), &wanted = pack_of(to, pair.to);
    std::vector<AdapterProduct> products;
    std::ranges::copy_if(merged, std::back_inserter(products), [&](const AdapterProduct& each) { return each.matrix == name; });
    const at::ScalarType layers = to.dtype(pair.to, ValuesOf::layers);
    const bool is_packed = wanted.format != PackFormat::plain, gives_packed = given.format != PackFormat::plain;
    if (to.store().is_buffer(pair.to)) {
      moves.lanes.push_back({pair, ValuesOf::layers, LaneTarget::buffer, layers});
    } else if (products.empty() && are_packed_alike(given, wanted)) {
      moves.lanes.push_back({pair, ValuesOf::layers, LaneTarget::packed_bytes, at::kByte});
    } else if (!products.empty() || gives_packed || (is_packed && !packs_by_rows(wanted))) {
      const at::ScalarType target = has_master_tensor(to, pair.to) ? to.dtype(pair.to, ValuesOf::master) : layers;
      const bool is_exact = !products.empty() || (is_packed && has_master_tensor(from, pair.from));
      moves.whole.push_back({pair, is_exact ? ValuesOf::master : source_for(from, pair.from, target), std::move(products)});
    } else if (is_packed) {
      moves.lanes.push_back(lane_of_rows(from, to, pair, rank, most_bytes));
    } else if (to.has_master(pair.to)) {
      moves.lanes.push_back(lane_to(from, pair, LaneTarget::values, to.dtype(pair.to, ValuesOf::master)));
      moves.lanes.push_back(lane_to(from, pair, LaneTarget::outside_owned, layers));
    } else {
      moves.lanes.push_back(lane_to(from, pair, LaneTarget::values, layers));
    }
  }
  return moves;
}

TransferLane lane_of(const LaneKind& kind, const TransferSide& from, const TransferSide& to, int rank, int ranks,
                     int64_t most_bytes) {
  const bool is_bytes = kind.target == LaneTarget::packed_bytes;
  TransferLane lane;
  lane.element_bytes = size_of(kind.travels);
  lane.shape = is_bytes ? to.packed_shape(kind.tensor.to, rank) : to.store().tensors()[kind.tensor.to].shape;
  for (int giver = 0; giver < ranks; ++giver) {
    const bool is_cut_alike = !is_bytes || from.boxes(kind.tensor.from, giver) == to.boxes(kind.tensor.to, rank);
    lane.held.push_back(is_cut_alike ? from.held(kind.tensor.from, kind.source, giver) : Region());
  }
  const int64_t most = std::max<int64_t>(1, most_bytes / lane.element_bytes);
  lane.wanted = kind.target == LaneTarget::packed_rows ? wanted_rows(kind, to, rank) : wanted_of(kind, to, rank, most);
  return lane;
}

TransferEnds ends_of(const LaneKind& kind, const Store& from, const Store& to) {
  return {kind.travels, source_of(kind, from), target_of(kind, to)};
}

}  // namespace zt
