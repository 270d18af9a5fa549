#include "owned_data.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>

#include "train/store/kept_elements.h"
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

// A part of a slice: elements [first, first + count) of it, and the place of the first among the wanted elements.
struct Stretch {
  int part;
  int64_t first, count, at;
};

// Cuts the wanted elements of a tensor that lies in slices, in order, where blocks begin. `longest`: most elements of a stretch,
// a multiple of kSliceAlign.
std::vector<Stretch> stretches_of(const OwnedPlace& place, const Slice& wanted, int64_t longest) {
  std::vector<Stretch> stretches;
  for (int part = 0; part < place.records->slices; ++part) {
    const Slice slice = place.records->slice(part);
    const int64_t end = std::min(slice.end(), wanted.end());
    for (int64_t begin = std::max(slice.first, wanted.first); begin < end;) {
      const int64_t next = std::min(end, (begin + longest) / kSliceAlign * kSliceAlign);
      stretches.push_back({part, begin - slice.first, next - begin, begin - wanted.first});
      begin = next;
    }
  }
  return stretches;
}

// The bytes of a stretch in its tier, with those around it that fill whole blocks.
class Window {
 public:
  Window(const StepState& state, const OwnedPlace& place, const Stretch& stretch)
      : homes_(*state.elsewhere.homes), place_(place), stretch_(stretch), begin_(stretch.first / kSliceAlign * kSliceAlign) {
    const int64_t end = in_whole_blocks(stretch.first + stretch.count);
    bytes_ = aligned_bytes((end - begin_) * size(), state.links->device(), /*is_zeroed=*/false);
  }
  at::Tensor elements() const { return bytes_.view(place_.records->dtype).narrow(0, stretch_.first - begin_, stretch_.count); }
  void read() { read_blocks(begin_, begin_ + bytes_.numel() / size()); }
  // Reads the blocks that have other elements, too. What follows the last element of a slice is nothing.
  void read_edges() {
    const int64_t end = stretch_.first + stretch_.count, last = end / kSliceAlign * kSliceAlign;
    if (begin_ < stretch_.first) read_blocks(begin_, begin_ + kSliceAlign);
    const bool is_shared = last < end && end < place_.records->slice(stretch_.part).count;
    if (is_shared && (last > begin_ || begin_ == stretch_.first)) read_blocks(last, last + kSliceAlign);
  }
  Work write() { return homes_.write(place_.records->home.tier, place_.byte_of(stretch_.part, begin_), bytes_); }

 private:
  int64_t size() const { return size_of(place_.records->dtype); }
  void read_blocks(int64_t begin, int64_t end) {
    const at::Tensor to = bytes_.narrow(0, (begin - begin_) * size(), (end - begin) * size());
    homes_.read(place_.records->home.tier, place_.byte_of(stretch_.part, begin), to).synchronize();
  }

  Homes& homes_;
  const OwnedPlace& place_;
  const Stretch stretch_;
  const int64_t begin_;  // of the first block, counted in the slice
  at::Tensor bytes_;
};

// Adds what is moved to the message of an error.
template <class Call>
void with_stretch(const StepState& state, const Unit& unit, const OwnedPlace& place, int part, const Call& call) {
  const auto about = [&] {
    return fmt::format("'{}' of unit '{}', slice {}", place.name, state.model->units[unit.index].name, part);
  };
  with_context(about, call);
}

// Returns the elements of a stretch that is in memory; undefined if it is not.
at::Tensor in_memory(const OwnedPlace& place, const Stretch& stretch) {
  const DataSlice& slice = (*place.slices)[static_cast<size_t>(stretch.part)];
  return slice.is_here ? slice.tensors.at(place.name).narrow(0, stretch.first, stretch.count) : at::Tensor();
}

// Calls visit(elements, at) for stretches of the wanted elements, in order: a view of them and the place of the first among the
// wanted ones.
template <class Visit>
void for_each_stretch(const StepState& state, const Unit& unit, const std::string& tensor, const Slice& wanted,
                      const Visit& visit) {
  const OwnedPlace place = place_of(state, unit, tensor);
  if (place.whole.defined()) return visit(place.whole.narrow(0, wanted.first, wanted.count), 0);
  for (const Stretch& stretch : stretches_of(place, wanted, kWindow)) {
    if (const at::Tensor here = in_memory(place, stretch); here.defined()) {
      visit(here, stretch.at);
      continue;
    }
    with_stretch(state, unit, place, stretch.part, [&] {
      Window window(state, place, stretch);
      window.read();
      visit(window.elements(), stretch.at);
    });
  }
}

}  // namespace

void read(const StepState& state, const Unit& unit, const std::string& tensor, int64_t first, at::Tensor to) {
  for_each_stretch(state, unit, tensor, {first, to.numel()},
                   [&](const at::Tensor& elements, int64_t at) { to.narrow(0, at, elements.numel()).copy_(elements); });
}

void write(const StepState& state, const Unit& unit, const std::string& tensor, int64_t first, const at::Tensor& from) {
  const OwnedPlace place = place_of(state, unit, tensor);
  if (place.whole.defined()) {
    place.whole.narrow(0, first, from.numel()).copy_(from);
    return;
  }
  constexpr size_t kAtOnce = 4;
  std::deque<std::pair<int, Work>> works;  // by slice
  const auto finish_one = [&] {
    const auto [part, work] = works.front();
    works.pop_front();
    with_stretch(state, unit, place, part, [&, work = work] { work.synchronize(); });
  };
  for (const Stretch& stretch : stretches_of(place, {first, from.numel()}, kWindow)) {
    const at::Tensor given = from.narrow(0, stretch.at, stretch.count);
    if (at::Tensor here = in_memory(place, stretch); here.defined()) {
      here.copy_(given);
      continue;
    }
    if (works.size() == kAtOnce) finish_one();
    with_stretch(state, unit, place, stretch.part, [&] {
      Window window(state, place, stretch);
      window.read_edges();
      window.elements().copy_(given);
      works.emplace_back(stretch.part, window.write());
    });
  }
  while (!works.empty()) finish_one();
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
  const auto copy_of = [](const at::Tensor& elements) { return elements.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true); };
  std::vector<KeptElements::Part> parts;
  if (place.whole.defined()) {
    parts.push_back({0, wanted.count, copy_of(place.whole.narrow(0, wanted.first, wanted.count))});
    return std::make_shared<KeptElements>(std::move(parts), place.whole.scalar_type());
  }
  const at::ScalarType dtype = place.records->dtype;
  for (const Stretch& stretch : stretches_of(place, wanted, in_whole_blocks(wanted.count) + kSliceAlign)) {
    KeptElements::Part& part = parts.emplace_back(stretch.at, stretch.count);
    if (const at::Tensor here = in_memory(place, stretch); here.defined()) {
      part.copy = copy_of(here);
      continue;
    }
    part.place = place.byte_of(stretch.part, stretch.first);
    part.bytes = state.elsewhere.homes->keep(place.records->home.tier, part.place, stretch.count * size_of(dtype));
  }
  return std::make_shared<KeptElements>(std::move(parts), dtype);
}

void round_master(const StepState& state, const Unit& unit) {
  if (!unit.has_own_master) return;
  for_each_stretch(state, unit, "master", {0, unit.layout.chunk},
                   [&](const at::Tensor& elements, int64_t at) { write(state, unit, "shard", at, elements); });
}

}  // namespace zt::owned_data
