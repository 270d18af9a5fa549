#include "held_boxes.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "zt/base/error.h"
#include "zt/gemm/packed_stack.h"

namespace zt::whole_tensors {

namespace {

// Returns the view of the box's elements.
at::Tensor part_of(at::Tensor whole, const Box& box) {
  for (size_t dim = 0; dim < box.begin.size(); ++dim)
    whole = whole.narrow(static_cast<int64_t>(dim), box.begin[dim], box.end[dim] - box.begin[dim]);
  return whole;
}

// Calls visit(part, elements) for each box: `part` is the view of it in `whole`, `elements` that in `flat`, which has the boxes'
// elements one after the other.
template <class Visit>
void for_each_box(const at::Tensor& whole, const std::vector<Box>& boxes, const at::Tensor& flat, const Visit& visit) {
  int64_t first = 0;
  for (const Box& box : boxes) {
    at::Tensor part = part_of(whole, box);
    visit(part, flat.narrow(0, first, box.numel()).view(part.sizes()));
    first += box.numel();
  }
}

}  // namespace

namespace {

// Returns the elements that this rank holds of a parameter, with padding as on the rank that holds most.
at::Tensor own_elements(const Store& store, int param, const at::Tensor& unit) {
  const ParamInfo& held = store.info(param);
  if (!held.is_packed()) return unit.narrow(0, held.offset, held.room);
  const Coord& coord = store.place().coord;
  const std::vector<int64_t> shape = held.local_shape(coord);
  const at::Tensor bytes = unit.narrow(0, held.offset, held.flat_numel(coord));
  const at::Tensor values = unpack(PackedStack{held.pack, shape, bytes}, store.tensors()[param].dtype).view({-1});
  return at::constant_pad_nd(values, {0, held.local_numel({}) - values.numel()});
}

}  // namespace

at::Tensor join_boxes(const Store& store, int param, const at::Tensor& unit) {
  const ParamInfo& held = store.info(param);
  const at::Tensor mine = own_elements(store, param, unit);
  const auto axes = held.cut_axes();
  if (axes.empty()) return mine.view(held.shape).clone();
  Communicator& comm = store.state().links->comm(axes);
  const int64_t room = mine.numel();
  const at::Tensor rooms = at::empty({comm.size() * room}, mine.options());
  comm.all_gather(rooms, mine).synchronize();
  const auto ranks = store.place().coord.shape.group(store.place().coord.rank, axes);
  at::Tensor all = at::empty(held.shape, mine.options());
  for (size_t i = 0; i < ranks.size(); ++i)
    for_each_box(all, held.boxes({store.place().coord.shape, ranks[i]}), rooms.narrow(0, static_cast<int64_t>(i) * room, room),
                 [](at::Tensor& part, const at::Tensor& elements) { part.copy_(elements); });
  return all;
}

at::Tensor join(const Store& store, int param, const at::Tensor& chunk) {
  const Unit& unit = store.unit_of(param);
  at::Tensor all = chunk;
  if (unit.layout.ranks > 1) {
    all = at::empty({unit.layout.padded()}, chunk.options());
    store.shard_axes_of(unit).all_gather(all, chunk).synchronize();
  }
  return join_boxes(store, param, all);
}

at::Tensor held_values(const Store& store, int param, const at::Tensor& values) {
  const Coord& coord = store.place().coord;
  const at::Tensor held = at::empty({store.info(param).local_numel(coord)}, values.options());
  for_each_box(values, store.info(param).boxes(coord), held,
               [](const at::Tensor& part, at::Tensor elements) { elements.copy_(part); });
  return held;
}

at::Tensor held_in_format(const Store& store, int param, const at::Tensor& all) {
  const ParamInfo& info = store.info(param);
  if (!info.is_packed()) return held_values(store, param, all);
  const Coord& coord = store.place().coord;
  if (all.scalar_type() == at::kByte) {
    const PackedStack whole{info.pack, info.shape, all.cpu()};
    return with_context([&] { return fmt::format("parameter '{}'", info.name); },
                        [&] { return cut_packed(whole, info.boxes(coord), info.local_shape(coord)).bytes; });
  }
  const at::Tensor values = held_values(store, param, all);
  const std::vector<int64_t> shape = info.local_shape(coord);
  const PackedStack held{info.pack, shape, at::zeros({packed_bytes(info.pack, shape)}, at::kByte)};
  with_context([&] { return fmt::format("parameter '{}'", info.name); }, [&] { pack(values.cpu().view(shape), held); });
  return held.bytes;
}

}  // namespace zt::whole_tensors
