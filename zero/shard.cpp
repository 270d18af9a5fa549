#include "shard.h"

#include <algorithm>

#include "buckets.h"
#include "handlers.h"
#include "readiness.h"
#include "residency.h"
#include "unit_plans.h"
#include "zt/base/error.h"
#include "zt/model/unit.h"

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

// Returns whether a REDUCE_GRAD of this part completes the sum of the step.
bool ends_sum(GradientPart part) {
  return part == GradientPart::whole || part == GradientPart::last;
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
    const UnitSets units = find_units(options_, model);
    const Kinds& kinds = Kinds::get();
    check_untouched(program, units.summed, model);
    for (Action& action : program.actions) {
      if (action.kind == kinds.count || action.kind == kinds.norm) add_axes(action, data_axes(), coord.shape);
    }
    set_types(program.precision);
    plan_units(options_, units, program);
    if (program.mode == Mode::train) {
      insert_reductions(program, model, units.summed);
      if (options_.sub_group_size > 0) slice_steps(program, model, coord);
      if (options_.stage >= 1) insert_gathers(program, model, units);
    }
    program.max_live = options_.max_live;
    program.actions = insert_residency(std::move(program.actions), model, units.sharded,
                                       {.axis = axis(),
                                        .prefetch = options_.prefetch.value_or(options_.overlaps() ? 1 : 0),
                                        .max_reuse_distance = options_.max_reuse_distance,
                                        .keeps_forward = options_.keep == "forward",
                                        .max_live = options_.max_live});
    if (!options_.overlaps()) mark_waits(program);
    return program;
  }

 private:
  const std::string& axis() const { return options_.axis->name; }
  std::string replicate() const { return options_.replicate ? options_.replicate->name : ""; }
  // Returns the data-parallel axes.
  std::vector<std::string> data_axes() const {
    return options_.replicate ? std::vector{replicate(), axis()} : std::vector{axis()};
  }

  void insert_reductions(Program& program, const ModelInfo& model, const std::vector<bool>& summed) const {
    const auto ready = options_.reduction() == "step" ? last_writes(program.actions, model, ResourceKind::grad, summed)
                                                      : micro_batch_gradients(program.actions, model, summed);
    program.actions =
        insert(std::move(program.actions), model, ready, Kinds::get().reduce_grad, {ResourceKind::grad}, options_.bucket_bytes);
    mark_conversions(program);
    if (options_.replicate) insert_replication(program.actions);
  }

  // Inserts UNSHARD after the updates of units whose parameters are not sharded.
  void insert_gathers(Program& program, const ModelInfo& model, const UnitSets& units) const {
    std::vector<bool> whole = units.summed;
    for (size_t unit = 0; unit < whole.size(); ++unit) whole[unit] = whole[unit] && !units.sharded[unit];
    const auto ready = last_writes(program.actions, model, ResourceKind::master, whole);
    program.actions =
        insert(std::move(program.actions), model, ready, Kinds::get().unshard, {ResourceKind::param, ResourceKind::master},
               options_.gather_bucket_bytes.value_or(options_.bucket_bytes));
  }

  // Inserts REPLICATE_GRAD where a gradient is summed within each group: it sums the shards over the groups.
  void insert_replication(std::vector<Action>& actions) const {
    std::vector<Action> result;
    for (Action& action : actions) {
      const bool is_whole = action.kind == Kinds::get().reduce_grad && ends_sum(action.gradient_part());
      Action next{.kind = Kinds::get().replicate_grad, .target = action.target, .attrs = action.attrs};
      result.push_back(std::move(action));
      if (!is_whole) continue;
      next.set_gradient_part(GradientPart::whole);
      next.attrs.erase("dtype");
      next.attrs["axes"] = Value::List{replicate()};
      result.push_back(std::move(next));
    }
    actions = std::move(result);
  }

  void slice_steps(Program& program, const ModelInfo& model, const Coord& coord) const {
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
    check_precision(precision, "zero.shard");
  }

  // Without overlap, makes actions wait at once: buffers in flight only cost memory.
  void mark_waits(Program& program) const {
    const Kinds& kinds = Kinds::get();
    for (Action& action : program.actions) {
      const bool is_own = action.kind == kinds.reduce_grad || action.kind == kinds.replicate_grad || action.kind == kinds.unshard;
      if (is_own && (action.axes() == std::vector{axis()} || action.axes() == std::vector{replicate()}))
        action.attrs["wait"] = true;
    }
  }

  static void mark_conversions(Program& program) {
    if (program.precision.reduce == program.precision.grads) return;
    for (Action& action : program.actions) {
      if (action.kind == Kinds::get().reduce_grad) action.attrs["dtype"] = float_type_name(program.precision.reduce);
    }
  }

  std::vector<Action> insert(std::vector<Action> actions, const ModelInfo& model, const std::vector<ReadyUnit>& ready,
                             KindId kind, std::vector<ResourceKind> touched, int64_t bucket_bytes) const {
    return insert_buckets(std::move(actions), model, ready, {kind, axis(), std::move(touched), bucket_bytes});
  }

  // Throws Misuse if one of the units is already sharded or reduced: summing a gradient twice would count every rank twice.
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
    misuse("zero.shard: replicate = '{}' must be another axis of the same mesh as '{}'", options.replicate->name,
           options.axis->name);
  if (options.axis->name.find('+') != std::string::npos) {
    misuse("zero.shard: '{}' joins several axes, but units are sharded along one: give one axis of the mesh", options.axis->name);
  }
  return std::make_shared<Shard>(std::move(options));
}

}  // namespace zt::zero
