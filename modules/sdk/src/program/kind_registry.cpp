#include "kind_registry.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <deque>
#include <mutex>
#include <optional>

#include "zt/base/error.h"
#include "zt/program/rank_program.h"

namespace zt {

namespace {

// Returns a model of two positions with one unit each; the second position reads the first.
ModelInfo example_model() {
  ModelInfo model;
  for (int i = 0; i < 2; ++i) {
    const std::string name = fmt::format("example.{}", i);
    PositionInfo position{.name = name, .kind = "example", .layer = i, .inputs = {}, .outputs = {{}}, .units = {i}, .axes = {}};
    if (i == 1) position.inputs = {{0, 0}};
    model.positions.push_back(std::move(position));
    model.units.push_back({.name = name, .params = {}, .numel = 1, .positions = {i}, .trainable = true});
  }
  return model;
}

// Returns what an action of that kind reads, writes and frees at the second unit or position of the example, each list sorted.
// Returns nullopt if the declaration throws for the example.
std::optional<std::array<std::vector<Resource>, 3>> example_resources(const Kind& kind) {
  static const ModelInfo model = example_model();
  const Action action{.target = kind.target == Index::none ? -1 : 1, .micro_batch = kind.has_micro_batch ? 0 : -1};
  try {
    Resources resources = kind.resources(action, model);
    for (auto* list : {&resources.reads, &resources.writes, &resources.frees}) std::ranges::sort(*list);
    return std::array{std::move(resources.reads), std::move(resources.writes), std::move(resources.frees)};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// Returns how `known` differs from `kind`, for a message; empty if both are the same.
std::string difference(const Kind& known, const Kind& kind) {
  if (known.target != kind.target) return "another target";
  if (known.has_micro_batch != kind.has_micro_batch) return known.has_micro_batch ? "a micro-batch" : "no micro-batch";
  if (known.role != kind.role) return "another role";
  return example_resources(known) == example_resources(kind) ? "" : "other resources that it reads, writes or frees";
}

class KindRegistry {
 public:
  KindId add(Kind kind) {
    const auto [id, known] = find_or_add(kind);
    const std::string other = known ? difference(*known, kind) : "";
    if (!other.empty()) {
      misuse("the action kind '{}' is registered already with {}: choose another name, or give the same declaration again",
             kind.name, other);
    }
    return id;
  }

  // Without a lock, because programs of thousands of ranks are walked through.
  const Kind& at(KindId id) const {
    const std::vector<const Kind*>& known = *by_id_.load(std::memory_order_acquire);
    if (id < 0 || id >= static_cast<KindId>(known.size()))
      misuse("there is no action kind number {}: use what kind_id returns", id);
    return *known[static_cast<size_t>(id)];
  }

  KindId find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = ids_.find(name);
    if (found == ids_.end()) misuse("unknown action kind '{}'{}", name, suggest(name, sorted_names()));
    return found->second;
  }

  std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    return sorted_names();
  }

 private:
  // Returns the id of that name, and the kind that was registered before or null. Does not call functions of kinds: the lock is
  // held.
  std::pair<KindId, const Kind*> find_or_add(const Kind& kind) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = ids_.try_emplace(kind.name, static_cast<KindId>(kinds_.size()));
    if (!is_new) return {found->second, by_id_.load()->at(static_cast<size_t>(found->second))};
    std::vector<const Kind*> all = tables_.back();
    all.push_back(&kinds_.emplace_back(kind));
    by_id_.store(&tables_.emplace_back(std::move(all)), std::memory_order_release);
    return {found->second, nullptr};
  }

  std::vector<std::string> sorted_names() const {
    std::vector<std::string> names;
    for (const auto& [name, id] : ids_) names.push_back(name);
    return names;
  }

  mutable std::mutex mutex_;
  std::deque<Kind> kinds_;                          // a deque: references stay valid while kinds are added
  std::deque<std::vector<const Kind*>> tables_{1};  // by id: all tables so far, because a reader may still have an old one
  std::atomic<const std::vector<const Kind*>*> by_id_ = &tables_.back();
  std::map<std::string, KindId> ids_;
};

KindRegistry& kind_registry() {
  static KindRegistry registry;
  return registry;
}

bool is_kind_name(const std::string& name) {
  const auto is_allowed = [](unsigned char c) { return std::isupper(c) || std::isdigit(c) || c == '_'; };
  return !name.empty() && std::isupper(static_cast<unsigned char>(name[0])) && std::all_of(name.begin(), name.end(), is_allowed);
}

}  // namespace

KindId add_kind(Kind kind) {
  return kind_registry().add(std::move(kind));
}

// Every public function calls Kinds::get first, so that the known kinds are registered before all others.
KindId register_kind(Kind kind) {
  Kinds::get();
  if (!is_kind_name(kind.name)) {
    misuse("'{}' is no name for an action kind: programs are text, so use upper-case letters, digits and '_'", kind.name);
  }
  if (!kind.resources)
    misuse("the action kind '{}' declares no resources: without them nothing can be scheduled around it", kind.name);
  return kind_registry().add(std::move(kind));
}

const Kind& kind(KindId id) {
  Kinds::get();
  return kind_registry().at(id);
}

KindId kind_id(const std::string& name) {
  Kinds::get();
  return kind_registry().find(name);
}

std::vector<std::string> kind_names() {
  Kinds::get();
  return kind_registry().names();
}

// Master parameters may be the shard, and whoever changes them rounds them to it. Whoever works with gradients, but for backwards
// and NORM, works with their owned parts.
static void add_owned_parts(const Action& action, Resources& resources) {
  const Role role = role_of(action);
  const bool uses_sums = role != Role::compute && role != Role::scalars && action.kind != Kinds::get().reduce_tie;
  if (role == Role::movement) return;
  for (auto* list : {&resources.reads, &resources.writes}) {
    for (size_t i = 0, n = list->size(); i < n; ++i) {
      Resource part = (*list)[i];
      if (part.type == resource::master) part.type = resource::shard;
      else if (part.type == resource::grad && uses_sums) part.type = resource::grad_shard;
      else continue;
      list->push_back(part);
    }
  }
}

Resources resources_of(const Action& action, const ModelInfo& model) {
  Resources resources = kind(action.kind).resources(action, model);
  const std::vector<Resource> buffers = buffers_used(action, model);
  for (auto* list : {&resources.reads, &resources.writes}) list->insert(list->end(), buffers.begin(), buffers.end());
  add_owned_parts(action, resources);
  return resources;
}

std::vector<Resource> buffers_used(const Action& action, const ModelInfo& model) {
  std::vector<Resource> used;
  if (!action.attrs.contains("buffers")) return used;
  const Index target = kind(action.kind).target;
  for (const std::string& name : action.buffers()) {
    const ResourceId type = resource_id(name);
    const Index of = type_of(type).index;
    if (!type_of(type).is_of_pass) misuse("'{}' in its buffers is no buffer of a pass: declare it by reads or writes", name);
    const bool is_of_layer = of == Index::layer && target == Index::position;
    if (of == Index::none) used.push_back({type, 0});
    else if (is_of_layer) used.push_back({type, model.positions.at(action.target).layer});
    else if (of != target)
      misuse("its target is {}, and the buffer '{}' is of another: a {}",
             target == Index::none ? "nothing" : "a " + word_of(target), name, word_of(of));
    else if (of == Index::unit)
      for (const int unit : action.units()) used.push_back({type, unit});
    else used.push_back({type, action.target});
  }
  return used;
}

Role role_of(const Action& action) {
  return kind(action.kind).role;
}

std::vector<std::vector<std::string>> communicators_of(const Action& action, const ModelInfo& model) {
  if (const auto& axes = kind(action.kind).axes) return axes(action, model);
  auto joined = action.axes();
  if (joined.empty()) return {};
  return {std::move(joined)};
}

bool communicates(const RankProgram& program, const ModelInfo& model) {
  return !program.split_axes.empty() || std::ranges::any_of(program.actions, [&](const Action& action) {
    return action.kind != Kinds::get().count && !communicators_of(action, model).empty();
  });
}

std::optional<Message> message_of(const Action& action) {
  const auto& message = kind(action.kind).message;
  return message ? message(action) : std::nullopt;
}

std::string queue_of(const Action& action) {
  const auto& queue = kind(action.kind).queue;
  return queue ? queue(action) : std::string();
}

void AttributeRule::operator()(const Action& action, const RankProgram& program) const {
  const std::string& name = kind(action.kind).name;
  if (only_in_training && program.mode != Mode::train) misuse("{} belongs in a training program: remove it", name);
  for (const auto& [attr, value] : action.attrs) {
    if (attr == "buffers" || attr == "sent") continue;
    if (std::ranges::find(attrs, attr) == attrs.end()) misuse("{} has no attribute '{}'{}", name, attr, suggest(attr, attrs));
  }
  if (needs_axes && action.axes().empty()) misuse("it names no axis to communicate on: give axes=[\"dp\"]");
  if (check) check(action, program);
}

Cost cost_of(const Action& action, const CostBasis& basis) {
  const auto& of_kind = kind(action.kind).cost;
  Cost cost = of_kind ? of_kind(action, basis) : Cost{};
  cost.sent_bytes = action.number("sent", cost.sent_bytes);
  return cost;
}

}  // namespace zt
