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

  // Returns the place in the tier of an element, counted in its slice.
  int64_t byte_of(int part, int64_t element) const {
    const auto number = std::ranges::find(records->tensors, name) - records->tensors.begin();
    return records->place(part) + number * records->room(part) + element * size_of(records->dtype);
  }
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
    const int64_t begin = first / kSliceAlign * kSliceAlign, end = in_whole_blocks(first + count);
    place_ = place.byte_of(part, begin);
    bytes_ = aligned_bytes((end - begin) * size_of(records_.dtype), state.links->device());
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

// A part of a slice: elements [first, first + count) of it, and the place of the first among the wanted elements.
struct Stretch {
  int part;
  int64_t first, count, at;
};

// Cuts the wanted elements of a tensor that lies in slices, in order. `longest`: most elements of a stretch.
std::vector<Stretch> stretches_of(const OwnedPlace& place, const Slice& wanted, int64_t longest) {
  std::vector<Stretch> stretches;
  for (int part = 0; part < place.records->slices; ++part) {
    const Slice slice = place.records->slice(part);
    const int64_t end = std::min(slice.end(), wanted.end());
    for (int64_t begin = std::max(slice.first, wanted.first); begin < end; begin += longest)
      stretches.push_back({part, begin - slice.first, std::min(longest, end - begin), begin - wanted.first});
  }
  return stretches;
}

// Calls visit(elements, at) for stretches of the wanted elements, in order: a view of them and the place of the first among the
// wanted ones. With Use::change they are written back.
template <class Visit>
void for_each_stretch(const StepState& state, const Unit& unit, const std::string& tensor, const Slice& wanted, Use use,
                      const Visit& visit) {
  const OwnedPlace place = place_of(state, unit, tensor);
  if (place.whole.defined()) return visit(place.whole.narrow(0, wanted.first, wanted.count), 0);
  for (const Stretch& stretch : stretches_of(place, wanted, kWindow)) {
    const DataSlice& here = (*place.slices)[static_cast<size_t>(stretch.part)];
    if (here.is_here) {
      visit(here.tensors.at(place.name).narrow(0, stretch.first, stretch.count), stretch.at);
      continue;
    }
    const auto about = [&] {
      return fmt::format("'{}' of unit '{}', slice {}", place.name, state.model->units[unit.index].name, stretch.part);
    };
    with_context(about, [&] {
      Window window(state, place, stretch.part, stretch.first, stretch.count);
      visit(window.elements(), stretch.at);
      if (use == Use::change) window.write_back();
    });
  }
}

// Elements that are in memory, or kept where they lie.
class KeptElements final : public PieceSource {
 public:
  // `at`: their place in the source. `place`: of their first byte in the tier.
  struct Part {
    int64_t at, count;
    at::Tensor copy;  // undefined if they lie elsewhere
    std::shared_ptr<KeptBytes> bytes = {};
    int64_t place = 0;
  };
  KeptElements(std::vector<Part> parts, at::ScalarType dtype) : parts_(std::move(parts)), dtype_(dtype) {}

  at::ScalarType dtype() const override { return dtype_; }
  void read(int64_t first, at::Tensor to) const override {
    for_each(first, to.numel(), [&](const Part& part, int64_t begin, int64_t count) {
      const at::Tensor target = to.narrow(0, part.at + begin - first, count);
      if (part.copy.defined()) target.copy_(part.copy.narrow(0, begin, count));
      else read_bytes(part, begin, target);
    });
  }
  void release(int64_t first, int64_t count) override {
    for_each(first, count, [&](const Part& part, int64_t begin, int64_t elements) {
      if (part.bytes) part.bytes->release(part.place + begin * size_of(dtype_), elements * size_of(dtype_));
    });
  }
  void write(int64_t, const at::Tensor&) override { fault("elements that are kept cannot be changed"); }
  std::shared_ptr<PieceSource> keep(int64_t, int64_t) const override { fault("elements can be kept once"); }

 private:
  // Calls visit(part, begin, count) for the parts of [first, first + wanted), with elements counted in the part.
  template <class Visit>
  void for_each(int64_t first, int64_t wanted, const Visit& visit) const {
    for (const Part& part : parts_) {
      const int64_t begin = std::max(first - part.at, int64_t{0}), end = std::min(first + wanted - part.at, part.count);
      if (begin < end) visit(part, begin, end - begin);
    }
  }

  void read_bytes(const Part& part, int64_t first, const at::Tensor& to) const {
    const int64_t begin = part.place + first * size_of(dtype_), end = begin + static_cast<int64_t>(to.nbytes());
    const int64_t aligned = begin / kHomeAlign * kHomeAlign, bytes = (end - aligned + kHomeAlign - 1) / kHomeAlign * kHomeAlign;
    thread_local at::Tensor window;  // of the thread that saves
    if (!window.defined() || window.numel() < bytes) window = aligned_bytes(bytes, at::kCPU);
    part.bytes->read(aligned, window.narrow(0, 0, bytes));
    to.copy_(window.narrow(0, begin - aligned, end - begin).view(dtype_));
  }

  const std::vector<Part> parts_;
  const at::ScalarType dtype_;
};

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

std::shared_ptr<PieceSource> keep(const StepState& state, const Unit& unit, const std::string& tensor, const Slice& wanted) {
  const OwnedPlace place = place_of(state, unit, tensor);
  if (place.whole.defined()) {
    const at::Tensor copy = place.whole.narrow(0, wanted.first, wanted.count).to(at::kCPU, false, true);
    return std::make_shared<KeptElements>(std::vector<KeptElements::Part>{{0, wanted.count, copy}}, copy.scalar_type());
  }
  std::vector<KeptElements::Part> parts;
  for (const Stretch& stretch : stretches_of(place, wanted, wanted.count)) {
    KeptElements::Part& part = parts.emplace_back(stretch.at, stretch.count);
    const DataSlice& here = (*place.slices)[static_cast<size_t>(stretch.part)];
    if (here.is_here) {
      part.copy = here.tensors.at(place.name).narrow(0, stretch.first, stretch.count).to(at::kCPU, false, true);
      continue;
    }
    part.place = place.byte_of(stretch.part, stretch.first);
    part.bytes = state.elsewhere.homes->keep(place.records->home.tier, part.place, stretch.count * size_of(place.records->dtype));
  }
  return std::make_shared<KeptElements>(std::move(parts), place.records->dtype);
}

void round_master(const StepState& state, const Unit& unit) {
  if (!unit.has_own_master) return;
  for_each_stretch(state, unit, "master", {0, unit.layout.chunk}, Use::read,
                   [&](const at::Tensor& elements, int64_t at) { write(state, unit, "shard", at, elements); });
}

}  // namespace zt::owned_data
