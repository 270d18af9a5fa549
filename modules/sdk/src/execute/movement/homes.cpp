#include "zt/execute/homes.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "model/build/unit_build.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/execute/pinning.h"

namespace zt {

KeptBytes::~KeptBytes() = default;
Homes::~Homes() = default;

HostBytes Homes::in_place(Tier tier, int64_t, int64_t) {
  fault("data of home={} do not lie in host memory", word_of(tier));
}

int64_t DataRecords::room(int part) const {
  return in_whole_blocks(slice(part).count) * size_of(dtype);
}

// All slices but the last ones are of one size, and begin at whole blocks.
int64_t DataRecords::place(int part) const {
  const int64_t before = part < slices ? slice(part).first : elements;
  return begin + (in_whole_blocks(before) - in_whole_blocks(slice(home.stays).first)) * size_of(dtype) * std::ssize(tensors);
}

DataSlice DataRecords::in_record(const at::Tensor& record, int part) const {
  DataSlice slice{.is_here = true};
  const int64_t each = room(part), bytes = this->slice(part).count * size_of(dtype);
  for (size_t i = 0; i < tensors.size(); ++i)
    slice.tensors[tensors[i]] = record.narrow(0, static_cast<int64_t>(i) * each, bytes).view(dtype);
  return slice;
}

HomeMap map_homes(const ModelInfo& model, const RankProgram& program, const std::vector<Unit>& units,
                  const std::vector<std::string>& states) {
  HomeMap map;
  const std::array tensors{names_of_state(program.precision, states), std::vector<std::string>{"grad_shard"},
                           std::vector<std::string>{"shard"}};
  const std::array types{program.precision.master(), program.precision.grads, program.precision.params};
  for (const UnitData data : kAllData) {
    const auto kind = static_cast<size_t>(data);
    for (const Unit& unit : units) {
      DataRecords& records = map.records[kind].emplace_back();
      const Home& home = unit.plan.home(data);
      const bool exists = data == UnitData::params || model.units[unit.index].trainable;
      if (!unit.plan.held || !home.is_elsewhere() || !exists) continue;
      int64_t& used = home.tier == Tier::host ? map.host : map.files;
      records = {.home = home,
                 .slices = unit.plan.slices,
                 .elements = unit.layout.chunk,
                 .tensors = tensors[kind],
                 .dtype = data == UnitData::params ? model.units[unit.index].element_type(types[kind]) : types[kind],
                 .begin = used};
      used = records.end();
    }
  }
  return map;
}

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t in_huge_pages(size_t bytes) {
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

OutOfMemory no_memory_for(int64_t bytes) {
  return OutOfMemory(fmt::format("cannot allocate {} for data that move", human_bytes(bytes)));
}

// Returns zeroed memory of whole huge pages, which make direct I/O two to three times as fast. It is not of the heap: what comes
// and goes between the tensors of layers would leave holes there that fit nothing else.
void* map_huge_pages(size_t bytes) {
  const size_t size = in_huge_pages(bytes);
  void* mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw no_memory_for(static_cast<int64_t>(bytes));
  auto* begin = static_cast<std::byte*>(mapped);
  auto* first = reinterpret_cast<std::byte*>(in_huge_pages(reinterpret_cast<size_t>(begin)));
  const auto before = static_cast<size_t>(first - begin);
  if (before > 0) munmap(begin, before);
  if (before < kHugePage) munmap(first + size, kHugePage - before);
  madvise(first, size, MADV_HUGEPAGE);  // without huge pages the kernel uses small ones
  return first;
}

}  // namespace

at::Tensor aligned_bytes(int64_t bytes, at::Device device, bool is_zeroed) {
  if (!device.is_cpu()) return at::zeros({bytes}, at::device(device).dtype(at::kByte));
  const auto size = static_cast<size_t>(bytes);
  if (size < kHugePage) {
    const int64_t whole = std::max(in_whole_pages(bytes), kHomeAlign);
    void* memory = std::aligned_alloc(static_cast<size_t>(kHomeAlign), static_cast<size_t>(whole));
    if (!memory) throw no_memory_for(bytes);
    if (is_zeroed) std::memset(memory, 0, size);
    return at::from_blob(
        memory, {bytes}, [](void* owned) { std::free(owned); }, at::kByte);
  }
  void* memory = map_huge_pages(size);
  return at::from_blob(
      memory, {bytes}, [size](void* owned) { munmap(owned, in_huge_pages(size)); }, at::kByte);
}

at::Tensor pinned_bytes(int64_t bytes, at::Device device) {
  const at::Tensor memory = aligned_bytes(bytes, at::kCPU);
  const Pinning pinning = pinning_for(device.type());
  if (bytes == 0 || !pinning.pin || !pinning.pin(memory.data_ptr(), static_cast<size_t>(bytes))) return memory;
  return at::from_blob(
      memory.data_ptr(), {bytes}, [memory, unpin = pinning.unpin](void* owned) { unpin(owned); }, at::kByte);
}

}  // namespace zt
