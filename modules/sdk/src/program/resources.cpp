// The registry of resource types, and the types of the SDK.
#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <deque>
#include <map>
#include <mutex>

#include "zt/base/error.h"
#include "zt/model/model.h"
#include "zt/program/resource.h"

namespace zt {

namespace {

// In the order of the constants in `resource`.
std::array<std::pair<ResourceId, ResourceType>, 15> sdk_types() {
  return {{
      {resource::param, {"param", Index::unit, false, true, "parameters", "", "the full parameters of a unit"}},
      {resource::master, {"master", Index::unit, false, true, "master", "model", "the owned part that the optimizer updates"}},
      {resource::grad, {"grad", Index::unit, false, true, "gradients", "", "the gradient of a unit's parameters"}},
      {resource::state, {"state", Index::unit, false, true, "optimizer", "optimizer", "the optimizer state of a unit"}},
      {resource::value, {"value", Index::position, true, false, "", "", "the outputs of a position"}},
      {resource::graph, {"graph", Index::position, true, false, "", "", "what a forward has kept for its backward"}},
      {resource::value_grad, {"value_grad", Index::position, true, false, "", "", "the gradient of the outputs"}},
      {resource::buffers, {"buffers", Index::layer, false, false, "", "model", "the tensors that a layer changes itself"}},
      {resource::deferred, {"deferred", Index::position, true, false, "", "", "weight gradients that I has left to W"}},
      {resource::scalars, {"scalars", Index::none, false, false, "", "", "counts, norm and loss of the step"}},
      {resource::staging,
       {"staging", Index::unit, false, false, "staging", "",
        "a unit's tensors on their way to the ranks that update them whole"}},
      {resource::slot, {"slot", Index::none, false, true, "staging", "", "places in memory for data that FETCH brings"}},
      {resource::shard, {"shard", Index::unit, false, true, "", "", "the owned part of a unit's parameters"}},
      {resource::grad_shard, {"grad_shard", Index::unit, false, true, "", "", "the owned part of a unit's gradient"}},
      {resource::cache, {"cache", Index::position, false, false, "", "", "keys and values of earlier tokens"}},
  }};
}

const char* name_of(Index index) {
  constexpr std::array kNames{"no index", "units", "positions", "layers"};
  return kNames.at(static_cast<size_t>(index));
}

// Returns how `known` differs from `type`, for a message; empty if both are the same.
std::string difference(const ResourceType& known, const ResourceType& type) {
  if (known.index != type.index) return fmt::format("another index ({})", name_of(known.index));
  if (known.has_micro_batch != type.has_micro_batch) return known.has_micro_batch ? "micro-batches" : "no micro-batches";
  if (known.has_slices != type.has_slices) return known.has_slices ? "slices" : "no slices";
  if (known.saved_as != type.saved_as) return fmt::format("the name '{}' in checkpoints", known.saved_as);
  if (known.memory != type.memory) return fmt::format("the memory kind '{}'", known.memory);
  if (known.is_of_pass != type.is_of_pass) return known.is_of_pass ? "a pass as its owner" : "the SDK or a module as its owner";
  return "";
}

class ResourceTypes {
 public:
  ResourceTypes() {
    for (auto& [id, type] : sdk_types()) {
      if (add(std::move(type)) != id) fault("the resource types of the SDK are not in the order of their ids");
    }
  }

  ResourceId add(ResourceType type) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = ids_.try_emplace(type.name, static_cast<ResourceId>(entries_.size()));
    if (is_new) {
      entries_.emplace_back().type = std::move(type);
    } else if (const std::string other = difference(entries_[static_cast<size_t>(found->second)].type, type); !other.empty()) {
      misuse("the resource type '{}' is registered already with {}: choose another name, or give the same facts again", type.name,
             other);
    }
    return found->second;
  }

  // A function that is set once, while other threads may ask for it.
  template <class F>
  class Once {
   public:
    void set(F function) {
      if (given_.load()) return;
      function_ = std::move(function);
      given_ = &function_;
    }
    const F* get() const { return given_; }

   private:
    F function_;
    std::atomic<const F*> given_ = nullptr;
  };
  struct Entry {
    ResourceType type;
    Once<TensorsOf> tensors;
    Once<BytesOf> bytes;
  };

  Entry& at(ResourceId id) {
    const std::lock_guard lock(mutex_);
    const auto place = static_cast<size_t>(id);
    if (place >= entries_.size()) misuse("there is no resource type number {}: use what resource_id returns", place);
    return entries_[place];
  }

  // Keeps the first function.
  template <class F>
  void set(ResourceId id, Once<F> Entry::*member, F function) {
    Entry& entry = at(id);
    const std::lock_guard lock(mutex_);
    (entry.*member).set(std::move(function));
  }

  ResourceId find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    if (const auto found = ids_.find(name); found != ids_.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [known, id] : ids_) names.push_back(known);
    misuse("unknown resource '{}'{}", name, suggest(name, names));
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;  // a deque: references stay valid while types are added
  std::map<std::string, ResourceId> ids_;
};

ResourceTypes& resource_types() {
  static ResourceTypes types;
  return types;
}

bool is_type_name(const std::string& name) {
  const auto is_allowed = [](unsigned char c) { return std::islower(c) || std::isdigit(c) || c == '_'; };
  return !name.empty() && std::islower(static_cast<unsigned char>(name[0])) && std::ranges::all_of(name, is_allowed);
}

}  // namespace

ResourceId register_resource(ResourceType type) {
  if (!is_type_name(type.name)) misuse("'{}' is no name for a resource type: use lower-case letters, digits and '_'", type.name);
  if (type.has_slices && type.index != Index::unit && type.index != Index::none)
    misuse("the resource type '{}' has slices, but its index counts {}: these are not cut into slices", type.name,
           name_of(type.index));
  if (!type.saved_as.empty() && type.index != Index::unit && type.index != Index::layer)
    misuse("the resource type '{}' is saved, but it is not of units or layers: its tensors would have no names", type.name);
  return resource_types().add(std::move(type));
}

const ResourceType& type_of(ResourceId id) {
  return resource_types().at(id).type;
}

ResourceId resource_id(const std::string& name) {
  return resource_types().find(name);
}

std::vector<ResourceId> resource_ids() {
  std::vector<ResourceId> ids(resource_types().size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<ResourceId>(i);
  return ids;
}

void set_tensors(ResourceId id, TensorsOf tensors) {
  resource_types().set(id, &ResourceTypes::Entry::tensors, std::move(tensors));
}

void set_bytes(ResourceId id, BytesOf bytes) {
  resource_types().set(id, &ResourceTypes::Entry::bytes, std::move(bytes));
}

const TensorsOf* tensors_of(ResourceId id) {
  return resource_types().at(id).tensors.get();
}

const BytesOf* bytes_of(ResourceId id) {
  return resource_types().at(id).bytes.get();
}

int count_of(Index index, const ModelInfo& model) {
  if (index == Index::none) return 1;
  if (index == Index::unit) return static_cast<int>(model.units.size());
  if (index == Index::position) return static_cast<int>(model.positions.size());
  int layers = 0;
  for (const PositionInfo& position : model.positions) layers = std::max(layers, position.layer + 1);
  return layers;
}

bool exists(const Resource& resource, const ModelInfo& model, int micro_batches) {
  const ResourceType& type = type_of(resource.type);
  if (resource.index < 0 || resource.index >= count_of(type.index, model)) return false;
  if (type.has_micro_batch ? resource.micro_batch < 0 || resource.micro_batch >= micro_batches : resource.micro_batch != -1)
    return false;
  return type.has_slices ? resource.part >= 0 && resource.part < resource.parts : resource.parts == 1;
}

}  // namespace zt
