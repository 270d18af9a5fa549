#include "move_slices.h"

#include "execute/norm/copies.h"
#include "execute/norm/unit_squares.h"
#include "zt/base/error.h"

namespace zt {

namespace {

// Sets the tensor of all elements. A gradient that is summed in the unit's own buffer stays there, and master parameters without
// memory of their own are the shard.
void set_whole(Unit& unit, UnitData data, const at::Tensor& whole) {
  if (data == UnitData::grads && unit.owns_grad_shard()) unit.grad_shard = whole;
  if (data != UnitData::params) return;
  unit.shard = whole;
  if (!unit.has_own_master) unit.master = whole;
}

// The data that an action of FETCH or EVICT moves: a slice, or the whole of data that are one tensor. A unit in one slice has
// both.
struct Movement {
  Unit& unit;
  UnitData data;
  const DataRecords& records;
  int part, parts;
  bool is_in_host_memory;
  at::Tensor record = {};  // its memory, in the action's slot; undefined while it is used at home

  bool is_at_home() const { return is_in_host_memory && records.home.tier == Tier::host; }

  bool is_slice() const { return parts == records.slices; }
  bool is_whole() const { return data != UnitData::state && parts == 1 && !is_in_host_memory; }
  int64_t bytes() const { return is_slice() ? records.bytes(part) : records.total(); }
  int64_t place() const { return is_slice() ? records.place(part) : records.begin; }
  DataSlice& slice() const { return unit.slices_of(data).at(static_cast<size_t>(part)); }
  const at::Tensor& whole() const { return data == UnitData::grads ? unit.grad_shard : unit.shard; }
  at::Tensor whole_in_record() const { return record.view(records.dtype).narrow(0, 0, records.elements); }
  bool is_here() const { return is_slice() ? slice().is_here : whole().defined(); }

  void take() const {
    if (is_slice()) slice() = records.in_record(record, part);
    if (is_whole()) set_whole(unit, data, whole_in_record());
  }
  void drop() const {
    if (is_slice()) slice() = {};
    if (is_whole()) set_whole(unit, data, {});
  }
};

Movement moved_by(const Action& action, StepState& state) {
  const auto data = action.unit_data();
  const DataRecords& records = state.elsewhere.map.of(data, action.target);
  Movement moved{.unit = state.units[static_cast<size_t>(action.target)],
                 .data = data,
                 .records = records,
                 .part = static_cast<int>(action.number("part", 0)),
                 .parts = static_cast<int>(action.number("parts", 1)),
                 .is_in_host_memory = action.is_in_host_memory()};
  if (moved.is_at_home()) return moved;
  const Elsewhere& elsewhere = state.elsewhere;
  const auto slot = static_cast<size_t>(action.number("slot", 0));
  moved.record = (moved.is_in_host_memory ? elsewhere.host_slots : elsewhere.slots).at(slot).narrow(0, 0, moved.bytes());
  return moved;
}

}  // namespace

// After a failure nothing is read or written: what other ranks wait for is sent from the places in memory, with any numbers, and
// homes keep the values from before.
Work start_fetch(const Action& action, StepState& state) {
  Movement moved = moved_by(action, state);
  if (!state.failure && moved.is_here()) fault("it brings what is in memory already");
  Homes& homes = *state.elsewhere.homes;
  const Tier tier = moved.records.home.tier;
  Work work;
  if (moved.is_at_home()) {
    HostBytes found = homes.in_place(tier, moved.place(), moved.bytes());
    moved.record = std::move(found.bytes);
    work = std::move(found.arrived);
  } else if (moved.record.numel() > 0 && !action.flag("fresh") && !state.failure) {
    work = homes.read(tier, moved.place(), moved.record);
  }
  if (!moved.is_here()) moved.take();
  return work;
}

Work start_evict(const Action& action, StepState& state) {
  const Movement moved = moved_by(action, state);
  const bool is_summed = action.flag("summed");
  if (state.failure) {
    if (!is_summed) moved.drop();
    return {};
  }
  if (!is_summed && !moved.is_here()) fault("it takes back what is not in memory");
  if (action.attrs.contains("squares")) {
    add_piece(moved.whole(), counted_piece(moved.unit, action.norm_axes(), state), state.squares);
    note_norms(moved.unit, action.norm_axes(), state);
  }
  if (is_summed) moved.whole_in_record().copy_(moved.whole());
  else moved.drop();
  if (moved.is_at_home() || moved.record.numel() == 0 || action.flag("unchanged")) return {};
  return state.elsewhere.homes->write(moved.records.home.tier, moved.place(), moved.record);
}

void drop_slices(StepState& state) {
  for (Unit& unit : state.units) {
    for (const UnitData data : kAllData) {
      std::vector<DataSlice>& slices = unit.slices_of(data);
      for (size_t part = static_cast<size_t>(unit.plan.home(data).stays); part < slices.size(); ++part) slices[part] = {};
    }
    for (const UnitData data : {UnitData::grads, UnitData::params}) {
      if (unit.is_sliced(data)) set_whole(unit, data, {});
    }
  }
}

}  // namespace zt
