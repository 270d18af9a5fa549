#include "program/lua_handler.h"

#include <algorithm>

#include "arguments.h"
#include "object.h"
#include "program/script_record.h"
#include "program/values.h"
#include "zt/base/error.h"
#include "zt/execute/gradient_sum.h"

namespace zt::lua {

namespace {

// What an action of a script sees.
class Shown {
 public:
  // `declared`: what the action may touch; null for everything. `target`: a unit of the action's bucket, or its target.
  Shown(const Action& action, int target, const StepState& state, const Resources* declared)
      : action_(action), target_(target), state_(state), declared_(declared) {}

  ScriptRecord record(bool is_replaced) {
    const Index of = kind(action_.kind).target;
    for (const auto& [name, value] : {std::pair<const char*, Value>{"step", state_.step},
                                      {"loss", state_.loss},
                                      {"grad_norm", state_.grad_norm},
                                      {"grad_divisor", state_.grad_divisor}})
      ctx_.add(name, value);
    ctx_.names += " unit position layer buffer out";
    if (of != Index::none) add_target(of);
    ctx_.part("buffer");
    for (const Resource& used : buffers_used(action_, *state_.model)) {
      const bool is_of_other_unit = type_of(used.type).index == Index::unit && used.index != target_;
      if (!is_of_other_unit) ctx_.add_tensor({"buffer." + type_of(used.type).name, state_.pass_buffer(used.type, used.index)});
    }
    if (is_replaced) add_output();
    return std::move(ctx_);
  }

 private:
  bool is_declared(ResourceId type) const {
    if (!declared_) return true;
    return std::ranges::find(declared_->reads, type, &Resource::type) != declared_->reads.end() ||
           std::ranges::find(declared_->writes, type, &Resource::type) != declared_->writes.end();
  }

  // Shows the tensors of all resources of the target. A slot that may hold another unit's values now reads as nil.
  void add_target(Index of) {
    ScriptRecord& record = ctx_.part(word_of(of));
    record.add("index", target_);
    record.add("name", owner_name(of, target_, *state_.model));
    if (of == Index::unit) {
      const Unit& unit = state_.units.at(target_);
      record.add("first", unit.rank * unit.layout.chunk);
      record.add("params", unit_params(*state_.model, target_, state_.links->place().coord));
    }
    for (const ResourceId type : resource_ids()) {
      const TensorsOf* tensors = tensors_of(type);
      if (!tensors || type_of(type).index != of || type_of(type).is_of_pass) continue;
      const Resource resource{
          .type = type, .index = target_, .micro_batch = type_of(type).has_micro_batch ? action_.micro_batch : -1};
      if (type_of(type).has_micro_batch && action_.micro_batch < 0) continue;
      // The outputs of a position and their gradients have the same names.
      ScriptRecord& place = of == Index::position ? record.part(type_of(type).name) : record;
      if (of == Index::unit) place.names += " " + type_of(type).name;  // nil, where the unit has none
      for (NamedTensor named : (*tensors)(resource, state_)) {
        if (named.memory == Memory::slot) named.tensor.reset();
        const size_t dot = named.name.find('.');
        const std::string field = named.name.substr(0, dot);
        if (is_declared(type) && !named.param.empty() &&
            named.tensor.defined())  // state of one parameter: unit.state.NAME[param]
          place.part(field).part(named.name.substr(dot + 1)).add_view(named.param, named.tensor);
        else if (is_declared(type)) place.add_tensor(named);
        else place.undeclared += fmt::format("{}={} ", field, type_of(type).name);
      }
    }
  }

  // Shows what a replaced kind fills, and what it fills it from, also in slots: they hold this unit's values now.
  void add_output() {
    const Kinds& kinds = Kinds::get();
    const Unit& unit = state_.units.at(target_);
    ScriptRecord& record = ctx_.parts.at("unit");
    if (action_.kind == kinds.unshard) {
      ctx_.add_view("out", unit.full.variable_data());  // autograd must not take it for a change of the parameters
    } else if (action_.kind == kinds.replicate_grad) {
      ctx_.add_view("out", unit.grad_shard);
    } else {
      ctx_.add_view("out", summed_part(unit, action_.gradient_part()));
      if (!record.fields.contains("grad")) record.add_view("grad", unit.grad);
    }
  }

  const Action& action_;
  int target_;
  const StepState& state_;
  const Resources* declared_;
  ScriptRecord ctx_{"ctx", ""};
};

// What a script has put into the places of no parameter would count in the norm.
void clear_sum(const StepState& state, int unit, GradientPart part) {
  const Unit& of = state.units.at(unit);
  clear_gaps(state, unit, summed_part(of, part), sums_parts(of) ? of.rank * of.layout.chunk : 0);
}

// Returns a copy of the master parameters if a gather in a script could change them, because layers read them where they lie.
at::Tensor gathered_master(const Action& action, const StepState& state, int unit) {
  if (action.kind != Kinds::get().unshard) return {};
  const Unit& of = state.units.at(unit);
  return of.has_own_master || of.owns_shard() ? at::Tensor() : of.master.clone();
}

void check_master(const at::Tensor& before, const Unit& unit) {
  if (before.equal(unit.master)) return;
  misuse(
      "the action UNSHARD of a script changed the master parameters of unit {}, which layers read where they lie: leave the part of "
      "ctx.out that this rank owns as it is, or give 16-bit parameters, or stage 3 with node_shared = false",
      unit.index);
}

}  // namespace

std::vector<std::string> replaceable_kinds() {
  const Kinds& kinds = Kinds::get();
  return {kind(kinds.reduce_grad).name, kind(kinds.replicate_grad).name, kind(kinds.unshard).name};
}

Work LuaHandler::call(const Action& action, int target, StepState& state) {
  const Resources declared = resources_of(action, *state.model);
  const bool is_replaced = std::ranges::count(replaceable_kinds(), name_) > 0;
  const ScriptRecord ctx = Shown(action, target, state, checks_ ? &declared : nullptr).record(is_replaced);
  lua_State* L = start_->begin();
  const int function = lua_gettop(L);
  const StackScope restored(L, function - 1);
  push_record(L, ctx);
  push_copy(L, ctx, -1);
  const int ctx_at = function + 1, copy_at = function + 2;
  lua_pushvalue(L, function);
  lua_pushvalue(L, ctx_at);
  push(L, to_value(action));
  start_->call(2, LUA_MULTRET);
  Work work;
  for (int result = copy_at + 1; result <= lua_gettop(L); ++result) {
    if (lua_isnil(L, result)) continue;
    if (result == copy_at + 1 && object_tag(L, result) == &tag_of<Work>()) {
      work = *check<Work>(L, result);
      continue;
    }
    misuse("the action {} returned {}: an action changes tensors in place, and returns nothing or the Work that it has started",
           name_, type_text(L, result));
  }
  check_unchanged(L, ctx, ctx_at, copy_at);
  return work;
}

Work LuaHandler::start(const Action& action, StepState& state) {
  if (role_of(action) == Role::update && !state.is_finite) return {};  // as STEP
  const Index of = kind(action.kind).target;
  const GradientPart part = action.kind == Kinds::get().reduce_grad ? action.gradient_part() : GradientPart::whole;
  std::vector<Work> works;
  for (const int target : of == Index::unit ? action.units() : std::vector<int>{action.target}) {
    const at::Tensor master = gathered_master(action, state, target);
    Work work = with_context(
        [&] { return fmt::format("action {} of {} in step {}", name_, owner_text(of, target, *state.model), state.step); },
        [&] { return call(action, target, state); });
    if (master.defined()) work = then(work, [master, &unit = state.units.at(target)] { check_master(master, unit); });
    if (of == Index::unit && writes_master_) work = then(work, [&unit = state.units.at(target)] { unit.round_master(); });
    if (action.kind == Kinds::get().reduce_grad) work = then(work, [&state, target, part] { clear_sum(state, target, part); });
    if (part != GradientPart::whole) work = then(work, [&unit = state.units.at(target), part] { accumulate(unit, part); });
    works.push_back(std::move(work));
  }
  return all_of(std::move(works));
}

}  // namespace zt::lua
