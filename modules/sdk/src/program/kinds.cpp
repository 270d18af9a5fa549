#include <algorithm>
#include <array>
#include <cctype>
#include <deque>
#include <mutex>
#include <optional>
#include <set>

#include "zt/base/error.h"
#include "zt/program/program.h"

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

// Returns the sorted reads and writes of an action of that kind, at the second unit or position of the example. Returns nullopt
// if the declaration throws for the example.
std::optional<std::array<std::vector<Resource>, 2>> example_resources(const Kind& kind) {
  static const ModelInfo model = example_model();
  const Action action{.target = kind.target == Target::none ? -1 : 1, .micro_batch = kind.has_micro_batch ? 0 : -1};
  try {
    Resources resources = kind.resources(action, model);
    std::ranges::sort(resources.reads);
    std::ranges::sort(resources.writes);
    return std::array{std::move(resources.reads), std::move(resources.writes)};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// Returns how `known` differs from `kind`, for a message; empty if both are the same.
std::string difference(const Kind& known, const Kind& kind) {
  if (known.target != kind.target) return "another target";
  if (known.has_micro_batch != kind.has_micro_batch) return known.has_micro_batch ? "a micro-batch" : "no micro-batch";
  return example_resources(known) == example_resources(kind) ? "" : "other resources that it reads or writes";
}

class Registry {
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

  const Kind& at(KindId id) const {
    const std::lock_guard lock(mutex_);
    if (id < 0 || id >= static_cast<KindId>(kinds_.size()))
      misuse("there is no action kind number {}: use what kind_id returns", id);
    return kinds_[id];
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
    if (is_new) kinds_.push_back(kind);
    return {found->second, is_new ? nullptr : &kinds_[found->second]};
  }

  std::vector<std::string> sorted_names() const {
    std::vector<std::string> names;
    for (const auto& [name, id] : ids_) names.push_back(name);
    return names;
  }

  mutable std::mutex mutex_;
  std::deque<Kind> kinds_;  // a deque: references stay valid while kinds are added
  std::map<std::string, KindId> ids_;
};

Registry& registry() {
  static Registry registry;
  return registry;
}

const PositionInfo& position_of(const Action& action, const ModelInfo& model) {
  return model.positions.at(action.target);
}

void add_params(const Action& action, const ModelInfo& model, std::vector<Resource>& to) {
  for (const int unit : position_of(action, model).units) to.push_back({ResourceKind::param, unit});
}

void add_inputs(const Action& action, const ModelInfo& model, std::vector<Resource>& to) {
  std::set<int> positions;
  for (const Edge& edge : position_of(action, model).inputs) positions.insert(edge.position);
  for (const int position : positions) to.push_back({ResourceKind::value, position, action.micro_batch});
}

void add_units(ResourceKind kind, const Action& action, std::vector<Resource>& to) {
  for (const int unit : action.units()) to.push_back({kind, unit});
}

// F and R: both read inputs and parameters, and write the position's value (R writes only its graph).
Resources forward_resources(const Action& action, const ModelInfo& model) {
  Resources resources;
  add_params(action, model, resources.reads);
  add_inputs(action, model, resources.reads);
  resources.writes = {{ResourceKind::value, action.target, action.micro_batch}};
  return resources;
}

Resources backward_resources(const Action& action, const ModelInfo& model) {
  const Resource value{ResourceKind::value, action.target, action.micro_batch};
  const Resource value_grad{ResourceKind::value_grad, action.target, action.micro_batch};
  Resources resources{{value, value_grad}, {value, value_grad}};  // also written: B frees both
  add_params(action, model, resources.reads);
  std::set<int> sources;
  for (const Edge& edge : position_of(action, model).inputs) {
    if (model.positions.at(edge.position).outputs.at(edge.output).differentiable) sources.insert(edge.position);
  }
  for (const int source : sources) resources.writes.push_back({ResourceKind::value_grad, source, action.micro_batch});
  for (const int unit : position_of(action, model).units) {
    if (model.units.at(unit).trainable) resources.writes.push_back({ResourceKind::grad, unit});
  }
  return resources;
}

Resources count_resources(const Action&, const ModelInfo&) {
  return {{}, {{ResourceKind::scalars}}};
}

Resources norm_resources(const Action&, const ModelInfo& model) {
  Resources resources{{{ResourceKind::scalars}}, {{ResourceKind::scalars}}};
  for (size_t unit = 0; unit < model.units.size(); ++unit) {
    if (model.units[unit].trainable) resources.reads.push_back({ResourceKind::grad, static_cast<int32_t>(unit)});
  }
  return resources;
}

Resources step_resources(const Action& action, const ModelInfo&) {
  Resources resources{{{ResourceKind::scalars}}, {}};
  add_units(ResourceKind::grad, action, resources.reads);
  for (const auto kind : {ResourceKind::master, ResourceKind::state, ResourceKind::param})
    add_units(kind, action, resources.writes);
  return resources;
}

Resources reduce_grad_resources(const Action& action, const ModelInfo&) {
  Resources resources;
  add_units(ResourceKind::grad, action, resources.reads);
  resources.writes = resources.reads;
  return resources;
}

Resources unshard_resources(const Action& action, const ModelInfo&) {
  Resources resources;
  add_units(ResourceKind::master, action, resources.reads);
  add_units(ResourceKind::param, action, resources.writes);
  return resources;
}

Resources reshard_resources(const Action& action, const ModelInfo&) {
  Resources resources;
  add_units(ResourceKind::param, action, resources.writes);
  return resources;
}

Kinds register_known_kinds() {
  const auto scalar = [](const char* name, auto resources, const char* doc) {
    return registry().add({name, Target::none, false, doc, resources});
  };
  const auto at_position = [](const char* name, auto resources, const char* doc) {
    return registry().add({name, Target::position, true, doc, resources});
  };
  const auto at_unit = [](const char* name, auto resources, const char* doc) {
    return registry().add({name, Target::unit, false, doc, resources});
  };
  Kinds kinds{};
  kinds.count = scalar("COUNT", count_resources, "counts the valid tokens and samples of the global batch");
  kinds.forward = at_position("F", forward_resources, "forward");
  kinds.backward = at_position("B", backward_resources, "full backward");
  kinds.recompute = at_position("R", forward_resources, "recomputes the forward of a checkpointed layer");
  kinds.reduce_grad = at_unit("REDUCE_GRAD", reduce_grad_resources, "sums a unit's gradient over its axis");
  kinds.replicate_grad = at_unit("REPLICATE_GRAD", reduce_grad_resources,
                                 "sums the owned part of a unit's gradient over the groups that hold the same shards");
  kinds.unshard = at_unit("UNSHARD", unshard_resources, "makes a unit's full parameters present and current");
  kinds.reshard = at_unit("RESHARD", reshard_resources, "frees a unit's full parameters");
  kinds.norm = scalar("NORM", norm_resources, "gradient norm, non-finite flag and loss");
  kinds.step = at_unit("STEP", step_resources, "updates the part of a unit that this rank owns");
  return kinds;
}

bool is_kind_name(const std::string& name) {
  const auto is_allowed = [](unsigned char c) { return std::isupper(c) || std::isdigit(c) || c == '_'; };
  return !name.empty() && std::isupper(static_cast<unsigned char>(name[0])) && std::all_of(name.begin(), name.end(), is_allowed);
}

}  // namespace

const Kinds& Kinds::get() {
  static const Kinds kinds = register_known_kinds();
  return kinds;
}

// Every public function calls Kinds::get first, so that the known kinds are registered before all others.
KindId register_kind(Kind kind) {
  Kinds::get();
  if (!is_kind_name(kind.name)) {
    misuse("'{}' is no name for an action kind: programs are text, so use upper-case letters, digits and '_'", kind.name);
  }
  if (!kind.resources)
    misuse("the action kind '{}' declares no resources: without them nothing can be scheduled around it", kind.name);
  return registry().add(std::move(kind));
}

const Kind& kind(KindId id) {
  Kinds::get();
  return registry().at(id);
}

KindId kind_id(const std::string& name) {
  Kinds::get();
  return registry().find(name);
}

std::vector<std::string> kind_names() {
  Kinds::get();
  return registry().names();
}

}  // namespace zt
