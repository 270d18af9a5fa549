#include "shard.h"

#include <algorithm>

#include "buckets.h"
#include "handlers.h"
#include "readiness.h"
#include "residency.h"
#include "zt/error.h"
#include "zt/unit.h"

namespace zt::zero {

namespace {

// Adds `wanted` to the axes that an action communicates on, in the mesh's order.
void add_axes(Action& action, const std::vector<std::string>& wanted, const MeshShape& mesh) {
  auto axes = action.axes();
  axes.insert(axes.end(), wanted.begin(), wanted.end());
  Value::List ordered;
  for (const AxisSize& axis : mesh.axes()) {
    if (std::find(axes.begin(), axes.end(), axis.name) != axes.end()) ordered.emplace_back(axis.name);
  }
  action.attrs["axes"] = std::move(ordered);
}

// Is the unit's gradient summed over the axis? Misuse when its trainable parameters disagree.
bool is_summed(const ModelInfo& model, int unit, const std::string& axis) {
  const ParamInfo* first = nullptr;
  for (const int index : model.units[unit].params) {
    const ParamInfo& param = model.params[index];
    if (!param.trainable) continue;
    if (!first) first = &param;
    if (placement_on(param.placements, axis) == placement_on(first->placements, axis)) continue;
    misuse(
        "zero.shard: the parameters '{}' and '{}' of unit '{}' are placed differently on axis '{}', and a unit is reduced as a "
        "whole: "
        "put them into different layers",
        first->name, param.name, model.units[unit].name, axis);
  }
  return first && placement_on(first->placements, axis) == Placement::replicated_other_data;
}

class Shard : public Pass {
 public:
  explicit Shard(ShardOptions options) : options_(std::move(options)) {}
  std::string name() const override { return "zero.shard"; }
  Phase phase() const override { return Phase::residency; }
  std::optional<std::vector<std::string>> differs_along() const override { return std::vector<std::string>{}; }
  std::shared_ptr<Mesh> mesh() const override { return std::const_pointer_cast<Mesh>(options_.axis->mesh.lock()); }
  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const override { return make_handlers(); }

  Program apply(Program program, const ModelInfo& model, const Coord& coord) const override {
    const std::vector<bool> units = summed_units(model);
    const Kinds& kinds = Kinds::get();
    check_untouched(program, units, model);
    for (Action& action : program.actions) {
      if (action.kind == kinds.count || action.kind == kinds.norm) add_axes(action, data_axes(), coord.shape);
    }
    set_types(program.precision);
    const std::vector<bool> cut = cut_units(model);
    if (options_.stage >= 1) plan(program, units, cut);
    if (program.mode == Mode::train) {
      const auto ready = options_.reduction() == "step" ? last_writes(program.actions, model, ResourceKind::grad, units)
                                                        : micro_batch_gradients(program.actions, model, units);
      program.actions =
          insert(std::move(program.actions), model, ready, kinds.reduce_grad, {ResourceKind::grad}, options_.bucket_bytes);
      mark_conversions(program);
      if (options_.replicate) insert_replication(program.actions);
      if (options_.sub_group_size > 0) cut_steps(program, model, coord);
    }
    if (program.mode == Mode::train && options_.stage >= 1) {
      std::vector<bool> whole = units;
      for (size_t unit = 0; unit < whole.size(); ++unit) whole[unit] = whole[unit] && !cut[unit];
      const auto ready = last_writes(program.actions, model, ResourceKind::master, whole);
      program.actions =
          insert(std::move(program.actions), model, ready, kinds.unshard, {ResourceKind::param, ResourceKind::master},
                 options_.gather_bucket_bytes.value_or(options_.bucket_bytes));
    }
    program.max_live = options_.max_live;
    program.actions = insert_residency(std::move(program.actions), model, cut,
                                       {.axis = axis(),
                                        .prefetch = options_.prefetch,
                                        .max_reuse_distance = options_.max_reuse_distance,
                                        .keeps_forward = options_.keep == "forward",
                                        .max_live = options_.max_live});
    return program;
  }

 private:
  const std::string& axis() const { return options_.axis->name; }
  // One copy a node takes less memory than a cut one that is gathered when it is used, and gathers nothing.
  bool is_node_shared() const {
    const auto& comm = options_.axis->communicator;
    return options_.stage >= 1 &&
           options_.node_shared.value_or(comm && comm->size() > 1 && comm->shares_memory() && !options_.moves_parameters());
  }
  std::string replicate() const { return options_.replicate ? options_.replicate->name : ""; }
  // Those whose ranks see other data.
  std::vector<std::string> data_axes() const {
    return options_.replicate ? std::vector{replicate(), axis()} : std::vector{axis()};
  }

  // Once a gradient is summed within the groups, the groups sum their shards.
  void insert_replication(std::vector<Action>& actions) const {
    std::vector<Action> result;
    for (Action& action : actions) {
      const std::string part = action.attr("sum");
      const bool is_whole = action.kind == Kinds::get().reduce_grad && (part.empty() || part == "last");
      Action next{.kind = Kinds::get().replicate_grad, .target = action.target, .attrs = action.attrs};
      result.push_back(std::move(action));
      if (!is_whole) continue;
      next.attrs.erase("sum");
      next.attrs.erase("dtype");
      next.attrs["axes"] = Value::List{replicate()};
      result.push_back(std::move(next));
    }
    actions = std::move(result);
  }

  void cut_steps(Program& program, const ModelInfo& model, const Coord& coord) const {
    std::vector<Action> result;
    for (Action& action : program.actions) {
      int64_t parts = 1;
      if (action.kind == Kinds::get().step) {
        const int ranks = program.units[action.target].state_sharded ? coord.size(axis()) : 1;
        const int64_t chunk = FlatLayout(model.units[action.target].numel, ranks).chunk;
        parts = std::max<int64_t>(1, (chunk + options_.sub_group_size - 1) / options_.sub_group_size);
      }
      for (int64_t part = 0; part < parts; ++part) {
        result.push_back(action);
        if (parts > 1) result.back().attrs = Value::Table{{"part", part}, {"parts", parts}};
      }
    }
    program.actions = std::move(result);
  }

  void set_types(Precision& precision) const {
    const bool was_sent_as_summed = precision.reduce == precision.grads;
    if (options_.grad_dtype) precision.grads = parse_float_type(*options_.grad_dtype, "zero.shard.grad_dtype");
    if (options_.reduce_dtype) precision.reduce = parse_float_type(*options_.reduce_dtype, "zero.shard.reduce_dtype");
    else if (was_sent_as_summed) precision.reduce = precision.grads;
    const auto is_double = [](at::ScalarType type) { return type == at::kDouble; };
    if (is_double(precision.params) != is_double(precision.grads) || is_double(precision.params) != is_double(precision.reduce))
      misuse("zero.shard: gradients of a program in {} cannot be {}, sent as {}: fp64 goes with fp64 only",
             float_type_name(precision.params), float_type_name(precision.grads), float_type_name(precision.reduce));
  }

  static void mark_conversions(Program& program) {
    if (program.precision.reduce == program.precision.grads) return;
    for (Action& action : program.actions) {
      if (action.kind == Kinds::get().reduce_grad) action.attrs["dtype"] = float_type_name(program.precision.reduce);
    }
  }

  // Whose parameters are cut: also frozen ones, of which every rank would hold the same.
  std::vector<bool> cut_units(const ModelInfo& model) const {
    std::vector<bool> cut(model.units.size(), false);
    for (size_t unit = 0; unit < cut.size() && options_.stage >= 3; ++unit) {
      const UnitInfo& info = model.units[unit];
      const bool is_alike = std::all_of(info.params.begin(), info.params.end(), [&](int index) {
        return placement_on(model.params[index].placements, axis()) == Placement::replicated_other_data;
      });
      cut[unit] = !is_node_shared() && is_alike && info.numel > 0 && info.numel >= options_.persist_below;
    }
    return cut;
  }

  void plan(Program& program, const std::vector<bool>& summed, const std::vector<bool>& cut) const {
    for (size_t unit = 0; unit < summed.size(); ++unit) {
      if (summed[unit] || cut[unit])
        program.units[unit] = {.axis = axis(),
                               .state_sharded = true,
                               .grad_sharded = options_.stage >= 2 || cut[unit],
                               .param_sharded = cut[unit],
                               .node_shared = is_node_shared(),
                               .replicate = replicate()};
    }
  }

  std::vector<Action> insert(std::vector<Action> actions, const ModelInfo& model, const std::vector<Ready>& ready, KindId kind,
                             std::vector<ResourceKind> touched, int64_t bucket_bytes) const {
    return insert_buckets(std::move(actions), model, ready, {kind, axis(), std::move(touched), bucket_bytes});
  }

  std::vector<bool> summed_units(const ModelInfo& model) const {
    std::vector<bool> units(model.units.size());
    for (int unit = 0; unit < static_cast<int>(units.size()); ++unit) {
      units[unit] = is_summed(model, unit, axis());
      if (!options_.replicate || !units[unit] || is_summed(model, unit, replicate())) continue;
      misuse(
          "zero.shard: the parameters of unit '{}' see other data along '{}' but not along '{}', so their groups are no replicas",
          model.units[unit].name, axis(), replicate());
    }
    const bool is_trained =
        std::any_of(model.units.begin(), model.units.end(), [](const UnitInfo& unit) { return unit.trainable; });
    if (is_trained && std::find(units.begin(), units.end(), true) == units.end()) {
      misuse(
          "zero.shard: along axis '{}' no parameter sees other data, so there is nothing to sum: give the data axis, or state "
          "the "
          "parameters' placements",
          axis());
    }
    return units;
  }

  // Summing a gradient twice would count every rank twice.
  static void check_untouched(const Program& program, const std::vector<bool>& units, const ModelInfo& model) {
    const auto refuse = [&](int unit) {
      misuse("zero.shard: unit '{}' is sharded or reduced by an earlier pass already: apply zero.shard once",
             model.units[unit].name);
    };
    for (size_t unit = 0; unit < units.size(); ++unit) {
      if (units[unit] && program.units.at(unit) != UnitPlan{}) refuse(static_cast<int>(unit));
    }
    for (const Action& action : program.actions) {
      if (action.kind != Kinds::get().reduce_grad) continue;
      for (const int unit : action.units()) {
        if (units.at(unit)) refuse(unit);
      }
    }
  }

  ShardOptions options_;
};

}  // namespace

std::shared_ptr<Pass> make_shard(ShardOptions options) {
  if (options.replicate &&
      (options.replicate->mesh.lock() != options.axis->mesh.lock() || options.replicate->name == options.axis->name))
    misuse("zero.shard: replicate = '{}' has to be another axis of the mesh that '{}' is of", options.replicate->name,
           options.axis->name);
  if (options.axis->name.find('+') != std::string::npos) {
    misuse("zero.shard: '{}' joins several axes, which units are not cut along: give one axis of the mesh", options.axis->name);
  }
  return std::make_shared<Shard>(std::move(options));
}

}  // namespace zt::zero
