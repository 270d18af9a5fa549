#include "shard.h"

#include <algorithm>

#include "buckets.h"
#include "handlers.h"
#include "readiness.h"
#include "residency/residency.h"
#include "unit_plans.h"
#include "zt/base/error.h"
#include "zt/model/unit.h"

namespace zt::zero {

namespace {

// Returns the axes with other samples in the order in which their ranks follow one another in the global batch: that of the mesh.
// If `joined`, the axes of zero.shard, have another order, they come last, in theirs.
std::vector<std::string> order_of_samples(const std::vector<std::string>& joined, const std::set<std::string>& all,
                                          const MeshShape& mesh) {
  std::vector<std::string> ordered, own, others;
  for (const AxisSize& axis : mesh.axes()) {
    if (!all.contains(axis.name)) continue;
    ordered.push_back(axis.name);
    (std::ranges::find(joined, axis.name) != joined.end() ? own : others).push_back(axis.name);
  }
  std::vector<std::string> wanted;
  std::ranges::copy_if(joined, std::back_inserter(wanted), [&](const std::string& axis) { return all.contains(axis); });
  if (own == wanted) return ordered;
  others.insert(others.end(), wanted.begin(), wanted.end());
  return others;
}

// Returns whether a REDUCE_GRAD of this part completes the sum of the step.
bool ends_sum(GradientPart part) {
  return part == GradientPart::whole || part == GradientPart::last;
}

class ShardPass : public Pass {
 public:
  explicit ShardPass(ShardOptions options) : options_(std::move(options)) {}
  std::string name() const override { return "zero.shard"; }
  std::string summary() const override { return fmt::format("zero.shard stage {}", options_.stage); }
  Phase phase() const override { return Phase::residency; }
  std::optional<std::vector<std::string>> differs_along() const override { return std::vector<std::string>{}; }
  std::shared_ptr<Mesh> mesh() const override { return std::const_pointer_cast<Mesh>(options_.axis->mesh.lock()); }
  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const override { return make_handlers(); }

  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord& coord) const override {
    const std::vector<UnitPlan> plans = plan_units(options_, model, coord.shape);
    check_untouched(program, plans, model);
    for (Action& action : program.actions) {
      if (role_of(action) == Role::scalars) span_mesh(action, model, coord.shape);
    }
    set_types(program.precision);
    for (size_t unit = 0; unit < plans.size(); ++unit) {
      const bool held = program.units[unit].held;
      if (plans[unit].is_spread()) program.units[unit] = plans[unit];
      program.units[unit].held = held;
    }
    if (options_.sub_group_size > 0) cut_units(program, model, coord);
    if (program.mode == Mode::train) {
      insert_reductions(program, model, plans);
      slice_steps(program);
      if (options_.stage >= 1) insert_gathers(program, model, plans);
    }
    program.max_live = options_.max_live;
    program.actions = insert_residency(std::move(program.actions), model,
                                       {.plans = plans,
                                        .waits = waits(),
                                        .prefetch = options_.prefetch.value_or(options_.overlaps() ? 1 : 0),
                                        .max_reuse_distance = options_.max_reuse_distance,
                                        .keep = keep(),
                                        .max_live = options_.max_live});
    return program;
  }

 private:
  StaysWhole keep() const {
    if (options_.keep == "max_live") return StaysWhole::max_live;
    return options_.keep == "forward" ? StaysWhole::forward : StaysWhole::use;
  }

  // Without overlap, communication is waited for at once: buffers in flight only cost memory.
  bool waits() const { return !options_.overlaps(); }

  // Makes COUNT and NORM sum over all ranks of the mesh; COUNT notes which of the axes have other samples.
  void span_mesh(Action& action, const ModelInfo& model, const MeshShape& mesh) const {
    const std::vector<std::string> known = action.attrs.contains("axes") ? action.sample_axes() : std::vector<std::string>{};
    action.set_axes(names_of(mesh.axes(), &AxisSize::name));
    if (action.kind != Kinds::get().count) return;
    std::set<std::string> with_samples(known.begin(), known.end());
    for (const std::string& axis : options_.data_axes()) with_samples.insert(axis);
    std::erase_if(with_samples, [&](const std::string& axis) { return model.is_inner(axis); });
    action.set_sample_axes(order_of_samples(options_.axis->names, with_samples, mesh));
  }

  void insert_reductions(RankProgram& program, const ModelInfo& model, const std::vector<UnitPlan>& plans) const {
    const std::vector<bool> summed = summed_units(model, plans);
    const auto ready = options_.reduction() == "step" ? last_writes(program.actions, model, resource::grad, summed)
                                                      : gradients_by_micro_batch(program.actions, model, summed);
    program.actions = insert_buckets(std::move(program.actions), model, ready,
                                     {Kinds::get().reduce_grad, plans, {resource::grad}, waits(), options_.bucket_bytes});
    mark_conversions(program);
    insert_replication(program.actions, plans);
  }

  // Inserts UNSHARD after the updates of units whose parameters are not sharded.
  void insert_gathers(RankProgram& program, const ModelInfo& model, const std::vector<UnitPlan>& plans) const {
    std::vector<bool> whole = summed_units(model, plans);
    for (size_t unit = 0; unit < whole.size(); ++unit) {
      const bool is_gathered = plans[unit].state == Residence::sharded && plans[unit].params != Residence::sharded;
      whole[unit] = whole[unit] && is_gathered;
    }
    const auto ready = last_writes(program.actions, model, resource::master, whole);
    const Bucketing bucketing{Kinds::get().unshard,
                              plans,
                              {resource::param, resource::master},
                              waits(),
                              options_.gather_bucket_bytes.value_or(options_.bucket_bytes)};
    program.actions = insert_buckets(std::move(program.actions), model, ready, bucketing);
  }

  // Inserts REPLICATE_GRAD where a gradient is summed within each group: it sums the shards over the groups.
  static void insert_replication(std::vector<Action>& actions, const std::vector<UnitPlan>& plans) {
    std::vector<Action> result;
    for (Action& action : actions) {
      const bool is_whole = action.kind == Kinds::get().reduce_grad && ends_sum(action.gradient_part());
      const auto& plan = is_whole ? plans[action.target] : UnitPlan{};
      const bool has_replicas = plan.state == Residence::sharded && !plan.replica_axes().empty();
      Action next{.kind = Kinds::get().replicate_grad, .target = action.target, .attrs = action.attrs};
      result.push_back(std::move(action));
      if (!has_replicas) continue;
      next.set_gradient_part(GradientPart::whole);
      next.attrs.erase("dtype");
      next.set_axes(plan.replica_axes());
      result.push_back(std::move(next));
    }
    actions = std::move(result);
  }

  void cut_units(RankProgram& program, const ModelInfo& model, const Coord& coord) const {
    const int64_t longest = in_whole_blocks(options_.sub_group_size);
    for (size_t unit = 0; unit < program.units.size(); ++unit) {
      const FlatLayout layout(model.units[unit].numel, coord.size(program.units[unit].shard_axes));
      program.units[unit].slices = static_cast<int>(slices_of_at_most(layout.chunk, longest));
    }
  }

  void set_types(Precision& precision) const {
    const bool was_sent_as_summed = precision.reduce == precision.grads;
    if (options_.grad_dtype) precision.grads = parse_float_type(*options_.grad_dtype, "zero.shard.grad_dtype");
    if (options_.reduce_dtype) precision.reduce = parse_float_type(*options_.reduce_dtype, "zero.shard.reduce_dtype");
    else if (was_sent_as_summed) precision.reduce = precision.grads;
    check_precision(precision, "zero.shard");
  }

  static void mark_conversions(RankProgram& program) {
    if (program.precision.reduce == program.precision.grads) return;
    for (Action& action : program.actions) {
      if (action.kind == Kinds::get().reduce_grad) action.attrs["dtype"] = float_type_name(program.precision.reduce);
    }
  }

  // Throws Misuse if one of the units is already sharded or reduced: summing a gradient twice would count every rank twice.
  static void check_untouched(const RankProgram& program, const std::vector<UnitPlan>& plans, const ModelInfo& model) {
    const auto refuse = [&](size_t unit) {
      misuse("zero.shard: unit '{}' is sharded or reduced by an earlier pass already: apply zero.shard once",
             model.units[unit].name);
    };
    for (size_t unit = 0; unit < plans.size(); ++unit) {
      if (plans[unit].is_spread() && program.units.at(unit).is_spread()) refuse(unit);
    }
    for (const Action& action : program.actions) {
      if (action.kind != Kinds::get().reduce_grad) continue;
      for (const int unit : action.units()) {
        if (plans.at(unit).is_spread()) refuse(static_cast<size_t>(unit));
      }
    }
  }

  ShardOptions options_;
};

}  // namespace

std::shared_ptr<Pass> make_shard(ShardOptions options) {
  if (options.replicate) {
    const Axis &copies = *options.replicate, &axis = *options.axis;
    const bool overlaps = std::ranges::find_first_of(copies.names, axis.names) != copies.names.end();
    if (overlaps || copies.mesh.lock() != axis.mesh.lock())
      misuse("zero.shard: replicate = '{}' must be another axis of the same mesh as '{}'", copies.name, axis.name);
  }
  return std::make_shared<ShardPass>(std::move(options));
}

}  // namespace zt::zero
