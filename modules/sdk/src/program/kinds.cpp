#include <algorithm>
#include <set>

#include "kind_costs.h"
#include "kind_registry.h"
#include "movement_kinds.h"
#include "zt/base/error.h"
#include "zt/program/rank_program.h"

namespace zt {

namespace {

const PositionInfo& position_of(const Action& action, const ModelInfo& model) {
  return model.positions.at(action.target);
}

void add_params(const Action& action, const ModelInfo& model, std::vector<Resource>& to) {
  for (const int unit : position_of(action, model).units) to.push_back({resource::param, unit});
}

void add_inputs(const Action& action, const ModelInfo& model, std::vector<Resource>& to) {
  std::set<int> positions;
  for (const Edge& edge : position_of(action, model).inputs) positions.insert(edge.position);
  for (const int position : positions) to.push_back({resource::value, position, action.micro_batch});
}

void add_units(ResourceId type, const Action& action, std::vector<Resource>& to) {
  for (const int unit : action.units()) to.push_back({type, unit});
}

Resource buffers_of(const Action& action, const ModelInfo& model) {
  return {resource::buffers, position_of(action, model).layer};
}

Resources recompute_resources(const Action& action, const ModelInfo& model) {
  Resources resources;
  add_params(action, model, resources.reads);
  if (position_of(action, model).has_update) resources.reads.push_back(buffers_of(action, model));
  add_inputs(action, model, resources.reads);
  resources.writes = {{resource::graph, action.target, action.micro_batch}};
  return resources;
}

Resources forward_resources(const Action& action, const ModelInfo& model) {
  Resources resources = recompute_resources(action, model);
  resources.writes.push_back({resource::value, action.target, action.micro_batch});
  if (position_of(action, model).tokens == TokenScope::cached) resources.writes.push_back({resource::cache, action.target});
  return resources;
}

// Returns the resources that B and I have in common: those of the gradients of the inputs.
Resources input_grad_resources(const Action& action, const ModelInfo& model) {
  const Resource value{resource::value, action.target, action.micro_batch};
  const Resource graph{resource::graph, action.target, action.micro_batch};
  const Resource value_grad{resource::value_grad, action.target, action.micro_batch};
  Resources resources{.reads = {graph, value_grad}, .writes = {}, .frees = {value, graph, value_grad}};
  add_params(action, model, resources.reads);
  std::set<int> sources;
  for (const Edge& edge : position_of(action, model).inputs) {
    if (model.positions.at(edge.position).outputs.at(edge.output).differentiable) sources.insert(edge.position);
  }
  for (const int source : sources) resources.writes.push_back({resource::value_grad, source, action.micro_batch});
  return resources;
}

void add_gradients(const Action& action, const ModelInfo& model, std::vector<Resource>& to) {
  for (const int unit : position_of(action, model).units) {
    if (model.units.at(unit).trainable) to.push_back({resource::grad, unit});
  }
}

Resources weight_grad_resources(const Action& action, const ModelInfo& model) {
  const Resource deferred{resource::deferred, action.target, action.micro_batch};
  Resources resources{.reads = {deferred}, .writes = {}, .frees = {deferred}};
  add_gradients(action, model, resources.writes);
  return resources;
}

Resources split_input_grad_resources(const Action& action, const ModelInfo& model) {
  Resources resources = input_grad_resources(action, model);
  resources.writes.push_back({resource::deferred, action.target, action.micro_batch});
  return resources;
}

Resources backward_resources(const Action& action, const ModelInfo& model) {
  Resources resources = input_grad_resources(action, model);
  add_gradients(action, model, resources.writes);
  return resources;
}

Resources count_resources(const Action&, const ModelInfo&) {
  return {{}, {{resource::scalars}}};
}

Resources norm_resources(const Action&, const ModelInfo& model) {
  Resources resources{{{resource::scalars}}, {{resource::scalars}}};
  for (size_t unit = 0; unit < model.units.size(); ++unit) {
    if (model.units[unit].trainable) resources.reads.push_back({resource::grad, static_cast<int32_t>(unit)});
  }
  return resources;
}

Resources step_resources(const Action& action, const ModelInfo&) {
  const auto slice = [&](ResourceId type) {
    const auto part = static_cast<int32_t>(action.number("part", 0)), parts = static_cast<int32_t>(action.number("parts", 1));
    return Resource{.type = type, .index = action.target, .part = part, .parts = parts};
  };
  Resources resources{.reads = {{resource::scalars}, slice(resource::grad)},
                      .writes = {slice(resource::master), slice(resource::state), slice(resource::param)}};
  if (action.flag("staged")) resources.writes.push_back({resource::staging, action.target});
  return resources;
}

Resources gather_tensors_resources(const Action& action, const ModelInfo&) {
  return {.reads = {{resource::scalars}, {resource::grad, action.target}, {resource::master, action.target}},
          .writes = {{resource::staging, action.target}}};
}

Resources scatter_tensors_resources(const Action& action, const ModelInfo&) {
  return {.reads = {{resource::scalars}},
          .writes = {{resource::master, action.target}, {resource::param, action.target}},
          .frees = {{resource::staging, action.target}}};
}

Resources update_resources(const Action& action, const ModelInfo& model) {
  return {{{resource::scalars}}, {buffers_of(action, model)}};
}

Resources reduce_grad_resources(const Action& action, const ModelInfo&) {
  Resources resources;
  add_units(resource::grad, action, resources.reads);
  resources.writes = resources.reads;
  return resources;
}

// Reading a gradient would add up the uses on this rank, but the sum is over the uses of all ranks, in ascending order.
Resources reduce_tie_resources(const Action& action, const ModelInfo&) {
  Resources resources;
  add_units(resource::grad, action, resources.writes);
  return resources;
}

Resources unshard_resources(const Action& action, const ModelInfo&) {
  Resources resources;
  add_units(resource::shard, action, resources.reads);
  add_units(resource::param, action, resources.writes);
  return resources;
}

Resources reshard_resources(const Action& action, const ModelInfo&) {
  Resources resources;
  add_units(resource::param, action, resources.frees);
  return resources;
}

std::vector<std::vector<std::string>> layer_axes(const Action& action, const ModelInfo& model) {
  std::vector<std::vector<std::string>> axes;
  for (const auto& axis : position_of(action, model).axes) axes.push_back({axis});
  return axes;
}

void check_keep(const Action& action, const RankProgram&) {
  action.keep();
}

// All gradients are sent in one type, because the trainer allocates its buffers for that type.
void check_reduce_grad(const Action& action, const RankProgram& program) {
  action.gradient_part();
  const Precision& types = program.precision;
  const std::string wanted = types.reduce == types.grads ? "" : float_type_name(types.reduce), given = action.attr("dtype");
  if (given == wanted) return;
  if (wanted.empty())
    misuse("dtype={}, but this program sends gradients as it sums them, in {}: leave it out", given,
           float_type_name(types.grads));
  misuse("this program sends gradients in {}: give dtype=\"{}\"", wanted, wanted);
}

void check_step(const Action& action, const RankProgram&) {
  const int64_t part = action.number("part", 0), parts = action.number("parts", 1);
  if (part < 0 || part >= parts) misuse("part={} of parts={}: slices are counted from 0", part, parts);
  action.is_in_host_memory();
}

void check_scalars(const Action& action, const RankProgram& program) {
  if (program.mode == Mode::generate) misuse("{} has nothing to work on when generating: remove it", kind(action.kind).name);
}

using CostOf = Cost (*)(const Action&, const CostBasis&);

KindId add_scalars(const char* name, auto resources, const char* doc, std::vector<std::string> attrs, CostOf cost) {
  Kind kind{name,      Index::none,   false,   doc,
            resources, Role::scalars, nullptr, AttributeRule{std::move(attrs), false, false, check_scalars}};
  kind.cost = cost;
  return add_kind(std::move(kind));
}
KindId add_compute(const char* name, auto resources, const char* doc, AttributeRule rule) {
  return add_kind({name, Index::position, true, doc, resources, Role::compute, layer_axes, std::move(rule)});
}
KindId add_of_unit(const char* name, auto resources, const char* doc, Role role, CostOf cost, AttributeRule rule,
                   bool among_holders = false) {
  Kind kind{name, Index::unit, false, doc, resources, role, nullptr, std::move(rule), among_holders};
  kind.cost = cost;
  return add_kind(std::move(kind));
}

Kinds add_known_kinds() {
  Kinds kinds{};
  kinds.count = add_scalars("COUNT", count_resources, "counts the valid tokens and samples of the global batch",
                            {"axes", "samples"}, nullptr);
  kinds.forward = add_compute("F", forward_resources, "forward", {{"keep"}, false, false, check_keep});
  kinds.backward = add_compute("B", backward_resources, "full backward", {{}, true});
  kinds.input_grad = add_compute("I", split_input_grad_resources, "backward for the inputs", {{}, true});
  kinds.weight_grad = add_compute("W", weight_grad_resources, "backward for the weights, after I", {{}, true});
  kinds.recompute = add_compute("R", recompute_resources, "recomputes the forward of a checkpointed layer", {{}, true});
  kinds.reduce_tie = add_of_unit("REDUCE_TIE", reduce_tie_resources,
                                 "sums the gradient of a tied parameter over the ranks that run positions which use it",
                                 Role::reduce, reduce_tie_cost, {{"axes"}, true, true}, true);
  kinds.reduce_grad = add_of_unit("REDUCE_GRAD", reduce_grad_resources, "sums a unit's gradient over its axis", Role::reduce,
                                  reduce_grad_cost, {{"axes", "dtype", "sum", "units", "wait"}, true, true, check_reduce_grad});
  kinds.replicate_grad = add_of_unit("REPLICATE_GRAD", reduce_grad_resources,
                                     "sums the owned part of a unit's gradient over the groups that hold the same shards",
                                     Role::reduce, replicate_grad_cost, {{"axes", "units", "wait"}, true, true});
  kinds.unshard = add_of_unit("UNSHARD", unshard_resources, "makes a unit's full parameters present and current", Role::residency,
                              unshard_cost, {{"axes", "units", "wait"}, false, true});
  kinds.reshard = add_of_unit("RESHARD", reshard_resources, "frees a unit's full parameters", Role::residency, nullptr, {});
  kinds.norm = add_scalars("NORM", norm_resources, "gradient norm, non-finite flag and loss", {"axes"}, norm_cost);
  kinds.step = add_of_unit("STEP", step_resources, "updates the part of a unit that this rank owns", Role::update, step_cost,
                           {{"memory", "part", "parts", "staged"}, true, false, check_step});
  kinds.update = add_kind({"UPDATE", Index::position, false, "updates the tensors that a layer changes itself", update_resources,
                           Role::update, nullptr, AttributeRule{{}, true}});
  kinds.gather_tensors = add_of_unit("GATHER_TENSORS", gather_tensors_resources,
                                     "brings a unit's tensors, with their gradients, to the ranks that update them whole",
                                     Role::update, gather_tensors_cost, {{"axes", "wait"}, true, true});
  kinds.scatter_tensors = add_of_unit("SCATTER_TENSORS", scatter_tensors_resources, "brings their new values back", Role::update,
                                      scatter_tensors_cost, {{"axes", "wait"}, true, true});
  kinds.fetch = add_kind(fetch_kind());
  kinds.evict = add_kind(evict_kind());
  kinds.fetch_value = add_kind(fetch_value_kind());
  kinds.evict_value = add_kind(evict_value_kind());
  return kinds;
}

}  // namespace

const Kinds& Kinds::get() {
  static const Kinds kinds = add_known_kinds();
  return kinds;
}

}  // namespace zt
