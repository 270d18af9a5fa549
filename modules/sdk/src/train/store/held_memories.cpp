#include "held_memories.h"

#include <algorithm>
#include <set>

#include "execute/movement/move_values.h"
#include "zt/program/resource.h"

namespace zt {

namespace {

class Memories {
 public:
  void add(const std::string& kind, const NamedTensor& named) {
    const at::Tensor& tensor = named.tensor;
    if (!tensor.defined()) return;
    const c10::Storage& storage = tensor.storage();
    if (named.memory == Memory::node) {  // the parts that the ranks own come with other tensors
      of_nodes_.insert(storage.unsafeGetStorageImpl());
    } else if (of_nodes_.contains(storage.unsafeGetStorageImpl())) {
      if (seen_.insert(tensor.const_data_ptr()).second) found_.push_back({kind, tensor.view(at::kByte)});
    } else if (seen_.insert(storage.unsafeGetStorageImpl()).second) {
      found_.push_back({kind, bytes_of(storage)});
    }
  }
  std::vector<HeldMemory> take() { return std::move(found_); }

 private:
  std::set<const void*> seen_, of_nodes_;
  std::vector<HeldMemory> found_;
};

}  // namespace

std::vector<HeldMemory> held_memories(const StepState& state) {
  Memories memories;
  std::vector<ResourceId> ids = resource_ids();
  std::ranges::stable_partition(ids, [](ResourceId id) { return id == resource::slot; });  // of which other types have views
  for (const ResourceId id : ids) {
    const ResourceType& type = type_of(id);
    const TensorsOf* tensors = tensors_of(id);
    if (type.memory.empty() || !tensors) continue;
    for (int32_t index = 0; index < count_of(type.index, *state.model); ++index) {
      for (const NamedTensor& named : (*tensors)({.type = id, .index = index}, state)) memories.add(type.memory, named);
    }
  }
  for (const PassTensor& each : state.pass_buffers) memories.add("buffers", {"", each.values});
  memories.add("buckets", {"", state.wire});
  return memories.take();
}

}  // namespace zt
