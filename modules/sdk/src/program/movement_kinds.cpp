#include "movement_kinds.h"

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/model/home.h"
#include "zt/program/rank_program.h"

namespace zt {

namespace {

// Returns the slices of the unit that move.
std::vector<Resource> moved(const Action& action) {
  const auto slice = [&](ResourceId type) {
    const auto part = static_cast<int32_t>(action.number("part", 0)), parts = static_cast<int32_t>(action.number("parts", 1));
    return Resource{.type = type, .index = action.target, .part = part, .parts = parts};
  };
  if (action.attr("what") == word_of(UnitData::params)) return {slice(resource::shard)};
  if (action.attr("what") == word_of(UnitData::grads)) return {slice(resource::grad_shard)};
  if (action.flag("master")) return {slice(resource::state), slice(resource::master)};
  return {slice(resource::state)};
}

Resource slot_of(const Action& action) {
  return {.type = resource::slot, .part = static_cast<int32_t>(action.number("slot", 0)), .parts = kMostSlots};
}

Resources fetch_resources(const Action& action, const ModelInfo&) {
  Resources resources{.reads = {}, .writes = moved(action)};
  resources.writes.push_back(slot_of(action));
  return resources;
}

Resources evict_resources(const Action& action, const ModelInfo&) {
  return {.reads = {}, .writes = {slot_of(action)}, .frees = moved(action)};
}

Tier tier_of(const Action& action) {
  return parse_word<Tier>(action.attr("home"), "unknown home");
}

std::string queue_of_tier(const Action& action) {
  return action.attr("home") == word_of(Tier::file) ? "file" : "copy";
}

// Returns the bytes that move.
int64_t moved_bytes(const Action& action, const CostBasis& basis) {
  const int64_t chunk = basis.units[static_cast<size_t>(action.target)].layout.chunk;
  const int64_t count = slice_of(chunk, action.number("part", 0), action.number("parts", 1)).count;
  const int64_t elements = in_whole_blocks(count);
  const Precision& types = basis.program.precision;
  if (action.unit_data() == UnitData::params) return elements * size_of(types.params);
  if (action.unit_data() == UnitData::grads) return elements * size_of(types.grads);
  return elements * (basis.optimizer_states + (action.flag("master") ? 1 : 0)) * size_of(types.master());
}

// Returns whether the slice is used where it lies.
bool is_at_home(const Action& action) {
  return action.is_in_host_memory() && tier_of(action) == Tier::host;
}

Cost fetch_cost(const Action& action, const CostBasis& basis) {
  if (action.flag("fresh") || is_at_home(action)) return {};
  const int64_t bytes = moved_bytes(action, basis);
  return tier_of(action) == Tier::file ? Cost{.file_read = bytes} : Cost{.copied = bytes};
}

Cost evict_cost(const Action& action, const CostBasis& basis) {
  if (action.flag("unchanged") || is_at_home(action)) return {};
  const int64_t bytes = moved_bytes(action, basis);
  return tier_of(action) == Tier::file ? Cost{.file_written = bytes} : Cost{.copied = bytes};
}

void check_tier(const Action& action) {
  if (tier_of(action) == Tier::device) misuse("home=device: data in the device's memory do not move, give host or file");
}

void check_slot(int64_t slot) {
  if (slot < 0 || slot >= kMostSlots) misuse("slot={}: give the number of a place in memory, from 0 to {}", slot, kMostSlots - 1);
}

void check_movement(const Action& action, const RankProgram& program) {
  const int64_t part = action.number("part", 0), parts = action.number("parts", 1), slot = action.number("slot", -1);
  const UnitData data = action.unit_data();
  check_tier(action);
  action.is_in_host_memory();
  action.norm_axes();
  if (part < 0 || part >= parts) misuse("part={} of parts={}: slices are counted from 0", part, parts);
  check_slot(slot);
  const bool is_complete_gradient = data == UnitData::grads && parts == 1;
  if ((action.attrs.contains("squares") || action.flag("summed")) && !is_complete_gradient)
    misuse("squares and summed are of all of a gradient: leave them out");
  if (data != UnitData::params && program.mode != Mode::train)
    misuse("{} are used in training only: remove it", data == UnitData::state ? "optimizer states" : "gradients");
  const bool has_master = data == UnitData::state && program.precision.is_mixed();
  if (action.flag("master") != has_master)
    misuse("{}: {} master=true",
           data != UnitData::state ? "these are no master parameters"
           : has_master            ? "master parameters of this precision have memory of their own"
                                   : "master parameters of this precision are the parameters",
           has_master ? "give" : "leave out");
}

Kind movement_kind(const char* name, const char* doc, Resources (*resources)(const Action&, const ModelInfo&),
                   Cost (*cost)(const Action&, const CostBasis&), std::vector<std::string> more) {
  std::vector<std::string> attrs{"home", "master", "memory", "part", "parts", "slot", "wait", "what"};
  std::ranges::move(more, std::back_inserter(attrs));
  return {.name = name,
          .target = Index::unit,
          .doc = doc,
          .resources = resources,
          .role = Role::movement,
          .check = AttributeRule{std::move(attrs), false, false, check_movement},
          .cost = cost,
          .queue = queue_of_tier};
}

// Returns what moves with the data of a step. An autograd graph refers to its inputs and outputs, so what moves a value touches
// the graphs of the position and of those that read it.
std::vector<Resource> moved_of_step(const Action& action, const ModelInfo& model) {
  const Resource graph{resource::graph, action.target, action.micro_batch};
  if (action.attr("what") == word_of(StepData::graph)) return {graph};
  std::vector<Resource> moved{{resource::value, action.target, action.micro_batch}, graph};
  for (const int reader : readers_of(model, action.target)) moved.push_back({resource::graph, reader, action.micro_batch});
  return moved;
}

Resources fetch_value_resources(const Action& action, const ModelInfo& model) {
  Resources resources{.reads = {}, .writes = moved_of_step(action, model)};
  resources.writes.push_back(slot_of(action));
  return resources;
}

Resources evict_value_resources(const Action& action, const ModelInfo& model) {
  return {.reads = {}, .writes = {slot_of(action)}, .frees = moved_of_step(action, model)};
}

void check_value_movement(const Action& action, const RankProgram&) {
  action.step_data();
  check_tier(action);
  check_slot(action.number("slot", -1));
  if (action.number("least", 0) < 0)
    misuse("least={}: give the bytes of the smallest tensor that leaves", action.number("least", 0));
}

// The bytes follow from the shapes of a batch, which a rehearsal knows.
Kind value_movement_kind(const char* name, const char* doc, Resources (*resources)(const Action&, const ModelInfo&),
                         std::vector<std::string> more) {
  std::vector<std::string> attrs{"home", "slot", "wait", "what"};
  std::ranges::move(more, std::back_inserter(attrs));
  return {.name = name,
          .target = Index::position,
          .has_micro_batch = true,
          .doc = doc,
          .resources = resources,
          .role = Role::movement,
          .check = AttributeRule{std::move(attrs), true, false, check_value_movement},
          .queue = queue_of_tier};
}

}  // namespace

Kind fetch_kind() {
  return movement_kind("FETCH", "brings a slice of a unit's data to a place in memory", fetch_resources, fetch_cost, {"fresh"});
}

Kind evict_kind() {
  return movement_kind("EVICT", "takes a slice back to where it lies between its uses", evict_resources, evict_cost,
                       {"squares", "summed", "unchanged"});
}

Kind fetch_value_kind() {
  return value_movement_kind("FETCH_VALUE", "brings back what EVICT_VALUE has taken", fetch_value_resources, {});
}

Kind evict_value_kind() {
  return value_movement_kind("EVICT_VALUE", "takes the outputs of a position, or what its forward has kept, out of memory",
                             evict_value_resources, {"least"});
}

}  // namespace zt
