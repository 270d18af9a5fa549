#include "owned_data.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::owned_data {

namespace {

constexpr int64_t kWindow = int64_t{1} << 20;  // most elements that are moved at once

// Where a tensor of the owned part lies: in memory as a whole, or in slices with records.
struct OwnedPlace {
  at::Tensor whole;  // undefined if it lies in slices
  const DataRecords* records = nullptr;
  const std::vector<DataSlice>* slices = nullptr;
  std::string name = {};  // in them
};

OwnedPlace place_of(const StepState& state, const Unit& unit, const std::string& tensor) {
  const std::string name = tensor == "master" && !unit.has_own_master ? "shard" : tensor;
  const UnitData data = name == "shard" ? UnitData::params : name == "grad_shard" ? UnitData::grads : UnitData::state;
  if (unit.is_sliced(data)) return {{}, &state.elsewhere.map.of(data, unit.index), &unit.slices_of(data), name};
  if (data == UnitData::params) return {unit.shard};
  if (data == UnitData::grads) return {unit.grad_shard};
  return {name == "master" ? unit.master : unit.state.at(name.substr(std::string_view("state.").size()))};
}

// The bytes of some elements of a slice in its tier, with those around them that fill whole blocks.
class Window {
 public:
  // `first`: counted in the slice.
  Window(const StepState& state, const OwnedPlace& place, int part, int64_t first, int64_t count)
      : homes_(*state.elsewhere.homes), records_(*place.records) {
    const auto number = std::ranges::find(records_.tensors, place.name) - records_.tensors.begin();
    const int64_t size = size_of(records_.dtype), begin = first / kSliceAlign * kSliceAlign;
    const int64_t end = in_whole_blocks(first + count);
    place_ = records_.place(part) + number * records_.room(part) + begin * size;
    bytes_ = aligned_bytes((end - begin) * size, state.links->device());
    elements_ = bytes_.view(records_.dtype).narrow(0, first - begin, count);
    homes_.read(records_.home.tier, place_, bytes_).synchronize();
  }
  const at::Tensor& elements() const { return elements_; }
  void write_back() { homes_.write(records_.home.tier, place_, bytes_).synchronize(); }

 private:
  Homes& homes_;
  const DataRecords& records_;
  int64_t place_ = 0;
  at::Tensor bytes_, elements_;
};

enum class Use : uint8_t { read, change };

// Calls visit(elements, at) for stretches of the wanted elements, in order: a view of them and the place of the first among the
// wanted ones. With Use::change they are written back.
template <class Visit>
void for_each_stretch(const StepState& state, const Unit& unit, const std::string& tensor, const Slice& wanted, Use use,
                      const Visit& visit) {
  const OwnedPlace place = place_of(state, unit, tensor);
  if (place.whole.defined()) return visit(place.whole.narrow(0, wanted.first, wanted.count), 0);
  for (int part = 0; part < place.records->slices; ++part) {
    const Slice slice = place.records->slice(part);
    const int64_t end = std::min(slice.end(), wanted.end());
    const DataSlice& here = (*place.slices)[static_cast<size_t>(part)];
    for (int64_t begin = std::max(slice.first, wanted.first); begin < end; begin += kWindow) {
      const int64_t count = std::min(kWindow, end - begin);
      if (here.is_here) {
        visit(here.tensors.at(place.name).narrow(0, begin - slice.first, count), begin - wanted.first);
        continue;
      }
      const auto about = [&] {
        return fmt::format("'{}' of unit '{}', slice {}", place.name, state.model->units[unit.index].name, part);
      };
      with_context(about, [&] {
        Window window(state, place, part, begin - slice.first, count);
        visit(window.elements(), begin - wanted.first);
        if (use == Use::change) window.write_back();
      });
    }
  }
}

}  // namespace

void read(const StepState& state, const Unit& unit, const std::string& tensor, int64_t first, at::Tensor to) {
  for_each_stretch(state, unit, tensor, {first, to.numel()}, Use::read,
                   [&](const at::Tensor& elements, int64_t at) { to.narrow(0, at, elements.numel()).copy_(elements); });
}

void write(const StepState& state, const Unit& unit, const std::string& tensor, int64_t first, const at::Tensor& from) {
  for_each_stretch(state, unit, tensor, {first, from.numel()}, Use::change,
                   [&](at::Tensor elements, int64_t at) { elements.copy_(from.narrow(0, at, elements.numel())); });
}

at::Tensor all(const StepState& state, const Unit& unit, const std::string& tensor) {
  const OwnedPlace place = place_of(state, unit, tensor);
  if (place.whole.defined()) return place.whole;
  const at::Tensor copy = at::empty({unit.layout.chunk}, unit.full.options().dtype(place.records->dtype));
  read(state, unit, tensor, 0, copy);
  return copy;
}

void round_master(const StepState& state, const Unit& unit) {
  if (!unit.has_own_master) return;
  for_each_stretch(state, unit, "master", {0, unit.layout.chunk}, Use::read,
                   [&](const at::Tensor& elements, int64_t at) { write(state, unit, "shard", at, elements); });
}

}  // namespace zt::owned_data
