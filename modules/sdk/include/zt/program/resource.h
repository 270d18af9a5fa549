// Resources: what actions read, write and free. Each type says what its index means, where its data lie and how they are counted.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zt {

struct ModelInfo;
struct RankBasis;
struct StepState;

// What the index of a resource, or the target of an action, counts.
enum class Index : uint8_t { none, unit, position, layer };
constexpr auto words_of(Index) {
  return std::array{"none", "unit", "position", "layer"};
}

// A type of resource. Plain data.
struct ResourceType {
  std::string name;  // lower case: "grad". The word of scripts, messages and texts
  Index index = Index::none;
  bool has_micro_batch = false;  // there is one for each micro-batch of a step
  bool has_slices = false;       // actions may touch one of several slices of it
  std::string memory = {};       // the kind under which reports count its bytes: "gradients". Empty: reports count it elsewhere
  // The first part of its names in checkpoints, such as "optimizer" of "optimizer/exp_avg/head.weight"; empty: checkpoints do not
  // hold it. Only types of units and layers can be saved.
  std::string saved_as = {};
  std::string doc = {};
  bool is_of_pass = false;  // a buffer of passes, which actions name in their attribute `buffers` (program/pass_buffer.h)
};

// The number of a type in the registry.
enum class ResourceId : int16_t {};

// The types that the SDK registers.
namespace resource {
inline constexpr ResourceId param{0};   // the full parameters of a unit
inline constexpr ResourceId master{1};  // the owned part that the optimizer updates. After writing it, call Unit::round_master
inline constexpr ResourceId grad{2};    // the gradient of a unit's parameters
inline constexpr ResourceId state{3};   // the optimizer state of a unit
inline constexpr ResourceId value{4};   // the outputs of a position for one micro-batch
inline constexpr ResourceId graph{5};   // what the forward of a position has kept for its backward, for one micro-batch
inline constexpr ResourceId value_grad{6};   // the gradient of the outputs of a position for one micro-batch
inline constexpr ResourceId buffers{7};      // the tensors that a layer changes itself
inline constexpr ResourceId deferred{8};     // the weight gradients of a position that I has left to W, for one micro-batch
inline constexpr ResourceId scalars{9};      // counts, norm and loss of the step
inline constexpr ResourceId staging{10};     // a unit's tensors on their way to the ranks that update them whole, and back
inline constexpr ResourceId slot{11};        // places in memory for data that FETCH brings: slices of one resource
inline constexpr ResourceId shard{12};       // the owned part of a unit's parameters, in their type: what UNSHARD gathers
inline constexpr ResourceId grad_shard{13};  // the owned part of a unit's gradient, as far as it is summed over ranks
inline constexpr ResourceId cache{14};       // the keys and values that a position keeps from one inference to the next
}  // namespace resource

// Something that an action reads or writes. Before an action starts, the executor waits for the works in flight that touch one of
// its resources. A resource with slices may be one of them: slice `part` of `parts`. Different slices do not conflict.
struct Resource {
  ResourceId type = resource::param;
  int32_t index = 0;         // 0 for types without an index
  int32_t micro_batch = -1;  // of types with micro-batches; -1 otherwise
  int32_t part = 0, parts = 1;
  auto operator<=>(const Resource&) const = default;
};
struct Resources {
  std::vector<Resource> reads, writes;
  std::vector<Resource> frees = {};  // their data are gone after the action; for conflicts they count as written
};

// Maps resources that share a buffer to one resource, so that writing one conflicts with using another. Empty: each has a buffer
// of its own.
using BufferOf = std::function<Resource(const Resource&)>;

// Whose memory a tensor is.
enum class Memory : uint8_t {
  own,   // of this resource; several resources may be views of it
  slot,  // a place that units take in turns: it may hold another unit's values now
  node,  // the ranks of a machine have it together, and each writes only its own part
};

// A tensor of a resource. `name` is that of a field of a unit, position or layer for scripts: "grad_shard", "state.exp_avg".
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  Memory memory = Memory::own;
  std::string param = {};  // of a resource of units: the parameter that it is of; empty: flat over all of the unit
};
// Returns the tensors of a resource, in an order that does not change. They are views of its memory; those that the rank does not
// hold now are undefined.
using TensorsOf = std::function<std::vector<NamedTensor>(const Resource&, const StepState&)>;
// Returns the bytes that a rank will hold of all resources of a type.
using BytesOf = std::function<int64_t(const RankBasis&)>;

// Registers a type for the process and returns its id. A name that is registered already with the same facts keeps its id; `doc`
// may differ. Throws Misuse if the name has other facts or is not lower case, if the type has slices but is of positions or
// layers, or if it is saved but is not of units or layers. Thread-safe, as are the functions below.
ResourceId register_resource(ResourceType type);
const ResourceType& type_of(ResourceId id);  // throws Misuse if there is no such type; the reference stays valid
// Throws Misuse, with the nearest name, if there is no such type.
ResourceId resource_id(const std::string& name);
std::vector<ResourceId> resource_ids();  // ascending

// Say where the data of a type are, and how many bytes they will have. Nothing reaches the data of a type without `tensors` by
// its name, and plans do not count a type without `bytes`. The functions must be pure and thread-safe. The first one of a type
// stays: a module that is opened by several Lua states may call these again.
void set_tensors(ResourceId id, TensorsOf tensors);
void set_bytes(ResourceId id, BytesOf bytes);
// Return them; null if none were set.
const TensorsOf* tensors_of(ResourceId id);
const BytesOf* bytes_of(ResourceId id);

// Returns the number of indices of a type in this model: units, positions or layers; 1 without an index.
int count_of(Index index, const ModelInfo& model);
// Returns whether the model has the resource, in a program with that many micro-batches.
bool exists(const Resource& resource, const ModelInfo& model, int micro_batches);

}  // namespace zt
