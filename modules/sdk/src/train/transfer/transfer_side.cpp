#include "transfer_side.h"

#include "execute/step/layer_table.h"

namespace zt {

namespace {

// Returns elements [first, first + count) of these boxes.
Region region_of(std::vector<Box> boxes, int64_t first, int64_t count) {
  if (count == 0) return {};
  return {std::move(boxes), first, count};
}

}  // namespace

TransferSide::TransferSide(const Store& store, int ranks) : store_(store) {
  const Plan& plan = store.plan();
  const Coord own = plan.program().coord();
  const int different = plan.program().mesh() ? ranks : 1;
  for (int rank = 0; rank < different; ++rank) {
    const Coord coord = different == 1 ? own : Coord{own.shape, rank};
    layouts_.push_back({coord, plan.describe_rank(coord),
                        positions_run(*plan.programs_of_ranks()[static_cast<size_t>(coord.rank)], plan.model())});
  }
}

bool TransferSide::has_slot(const RankLayout& of, int unit) const {
  return of.held.slots.of(resource::param).of_unit[static_cast<size_t>(unit)] >= 0;
}

bool TransferSide::has_master(int param) const {
  const Plan& plan = store_.plan();
  return plan.trains() && plan.model().units[store_.info(param).unit].trainable && plan.main().precision.is_mixed();
}

bool TransferSide::has_owned_part_only(int param, int rank) const {
  const int index = store_.info(param).unit;
  const RankLayout& of = layout(rank);
  const Unit& unit = of.held.units[static_cast<size_t>(index)];
  return unit.is_node_shared() || has_slot(of, index) || unit.plan.params_home.is_elsewhere();
}

std::vector<Box> TransferSide::boxes(int param, int rank) const {
  return store_.info(param).boxes(layout(rank).coord);
}

std::vector<int64_t> TransferSide::packed_shape(int param, int rank) const {
  return {store_.info(param).flat_numel(layout(rank).coord)};
}

Region TransferSide::held(int tensor, ValuesOf values, int rank) const {
  const RankLayout& of = layout(rank);
  if (store_.is_buffer(tensor)) {
    const ModelInfo& model = store_.plan().model();
    const BufferInfo& buffer = model.buffers[store_.buffer_index(tensor)];
    for (size_t p = 0; p < of.runs.size(); ++p) {
      if (of.runs[p] && model.positions[p].layer == buffer.layer) return whole_region(store_.tensors()[tensor].shape);
    }
    return {};
  }
  const ParamInfo& info = store_.info(tensor);
  const Unit& unit = of.held.units[static_cast<size_t>(info.unit)];
  if (!unit.plan.held) return {};
  const int64_t all = info.flat_numel(of.coord);
  std::vector<Box> boxes = info.is_packed() ? std::vector<Box>{{{0}, {all}}} : info.boxes(of.coord);
  const bool is_owned_only = values == ValuesOf::master || (has_owned_part_only(tensor, rank) && !unit.is_node_shared());
  if (!is_owned_only) return region_of(std::move(boxes), 0, all);
  const OwnedRun run = owned_run(info, unit, of.coord);
  return region_of(std::move(boxes), run.first, run.count);
}

at::ScalarType TransferSide::dtype(int tensor, ValuesOf values) const {
  if (store_.is_buffer(tensor)) return store_.tensors()[tensor].dtype;
  const Precision& types = store_.plan().main().precision;
  return values == ValuesOf::master ? types.master() : types.params;
}

}  // namespace zt
