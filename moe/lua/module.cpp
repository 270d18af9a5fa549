// The binding of zt.moe. The Lua file layers.lua joins the layers.
#include <ATen/ATen.h>

#include "exchange/dispatcher.h"
#include "experts/dense_branch.h"
#include "experts/experts_of.h"
#include "routing/router.h"
#include "routing/routes.h"
#include "routing/selection.h"
#include "zt/base/options.h"
#include "zt/comm/mesh.h"
#include "zt/lua/state.h"
#include "zt/model/precision.h"

namespace zt::moe {

namespace {

struct ExchangeTable : ExchangeOptions {
  std::shared_ptr<Axis> shared_by;  // ExchangeOptions::axis and ::ranks come from it
  std::optional<bool> overlap;
  std::optional<std::string> transport;
};

// Returns the ranks of the axis, 1 without one. Throws Misuse if they cannot share the experts evenly.
int ranks_of(const std::shared_ptr<Axis>& axis, int64_t experts, const std::string& path) {
  const int ranks = axis ? axis->size : 1;
  if (experts % ranks != 0)
    misuse("{}: {} experts cannot be divided over the {} ranks of axis '{}' evenly: change one of them", path, experts, ranks,
           axis->name);
  return ranks;
}

std::string axis_name(const std::shared_ptr<Axis>& axis, const std::string& path) {
  if (!axis) return "";
  if (axis->names.size() > 1) misuse("{}: experts are spread over one axis, '{}' joins several", path, axis->name);
  return axis->name;
}

// The options of moe.dispatch and moe.combine.
Schema<ExchangeTable> exchange_schema(const char* name) {
  return Schema<ExchangeTable>(name)
      .required("experts", &ExchangeTable::experts, "number of experts", at_least(1))
      .required("hidden", &ExchangeTable::hidden, "columns of a token", at_least(1))
      .optional("axis", &ExchangeTable::shared_by, "the axis whose ranks share the experts")
      .optional("dispatcher", &ExchangeTable::dispatcher, "how tokens are sent", one_of(dispatcher_names()))
      .optional("overlap", &ExchangeTable::overlap, "send while other actions run; default: over nccl")
      .optional("transport", &ExchangeTable::transport, "dtype in which rows are sent, such as \"bf16\"; default: their own")
      .optional("shared", &ExchangeTable::has_shared, "add the value `shared`")
      .optional("planned_rows", &ExchangeTable::planned_rows, "of plans: rows of a rank, as a multiple of balanced routing's",
                above(0))
      .only_with("without capacity, which bounds the rows", [](const ExchangeTable& o) { return !o.capacity; })
      .optional("top_k", &ExchangeTable::top_k, "that of the router, for the capacity if experts choose", at_least(1))
      .optional("capacity", &ExchangeTable::capacity, "that of the router: with `pad`, no counts are exchanged");
}

ExchangeOptions exchange_of(const ExchangeTable& table, const std::string& path) {
  ExchangeOptions options = table;
  options.axis = axis_name(table.shared_by, path);
  options.ranks = ranks_of(table.shared_by, table.experts, path);
  const bool overlaps = table.overlap.value_or(table.shared_by && table.shared_by->link.is_on_device);
  options.send.async = overlaps ? Async::yes : Async::no;
  if (table.transport) options.send.dtype = parse_float_type(*table.transport, path + ".transport");
  if (table.capacity && table.capacity->pad) options.padding = table.capacity;
  return options;
}

std::shared_ptr<Layer> made(std::shared_ptr<Layer> (*make)(const ExchangeOptions&), const ExchangeTable& table,
                            const std::string& path) {
  return with_context([&] { return path; }, [&] { return make(exchange_of(table, path)); });
}

// A selection that a script gives: select = function(scores) ... end. `scores`: [samples, tokens, experts] in host memory, a
// copy. The function returns int64 [samples, tokens, top_k]: the experts of each token, all different, or -1 for an empty route;
// anything else is a Misuse. It may not draw from the Lua state's random generator. It is not called for scores that are not
// finite, because such a step fails or is skipped. Threads: only the thread of the function's lua_State.
class ScriptSelection final : public Selection {
 public:
  explicit ScriptSelection(std::shared_ptr<lua::Callable> function)
      : function_(std::move(function)), place_(function_->place()) {}

  std::string kind() const override { return "the function at " + place_; }
  at::Tensor select(const Candidates& candidates, Context&) const override {
    const at::Tensor scores = candidates.scores.detach().cpu();
    if (!scores.isfinite().all().item<bool>()) return select_top_k(scores, {candidates.routes});
    return with_context([&] { return fmt::format("in the function `select` at {}", place_); },
                        [&] {
                          const at::Tensor own = scores.view({candidates.samples, candidates.tokens, -1}).clone();
                          const at::Tensor experts = call(own).cpu().contiguous();
                          check_routes(experts, candidates.sizes(), "the experts that it returns");
                          return experts.view({-1, candidates.routes}).clone();
                        });
  }

 private:
  at::Tensor call(const at::Tensor& scores) const {
    lua_State* L = function_->begin();
    const lua::StackScope scope(L, lua_gettop(L) - 1);
    lua::push(L, scores);
    const lua::NoDefaultRandom no_default_random(L);
    function_->call(1, 2);
    if (!lua_isnil(L, -1))
      misuse("it must return one tensor, got more values: `local _, experts = scores:topk(2)` takes the second");
    if (!lua::is_tensor(L, -2)) misuse("it must return a tensor of experts, got {}", luaL_typename(L, -2));
    return lua::check_tensor(L, -2);
  }

  std::shared_ptr<lua::Callable> function_;
  std::string place_;
};

// A function as `select` becomes a Selection.
std::shared_ptr<Layer> router(Value value) {
  if (const auto* given = value.get_if<Value::Table>(); given && given->contains("select")) {
    const Value& select = given->at("select");
    const auto* object = select.get_if<Object>();
    const auto function = object ? object->as<lua::Callable>() : nullptr;
    if (!function) wrong_type("moe.router.select", "a function(scores)", select);
    Value::Table table = *given;
    table["select"] = Object::of<Selection>(std::make_shared<ScriptSelection>(function));
    value = std::move(table);
  }
  return schema_of(RouterOptions()).make(value, make_router);
}

std::shared_ptr<Layer> dispatch(const Value& value) {
  static const auto kSchema = exchange_schema("moe.dispatch");
  return kSchema.make(value, [](const ExchangeTable& table) { return made(make_dispatch, table, kSchema.name()); });
}

std::shared_ptr<Layer> combine(const Value& value) {
  static const auto kSchema = exchange_schema("moe.combine");
  return kSchema.make(value, [](const ExchangeTable& table) { return made(make_combine, table, kSchema.name()); });
}

struct ExpertsTable {
  int64_t experts = 0;
  std::shared_ptr<Layer> expert;
  std::shared_ptr<Axis> axis;
};

std::shared_ptr<Layer> experts(const Value& value) {
  static const auto kSchema = Schema<ExpertsTable>("moe.experts")
                                  .required("experts", &ExpertsTable::experts, "number of experts", at_least(1))
                                  .required("expert", &ExpertsTable::expert, "the layer that each expert is like")
                                  .optional("axis", &ExpertsTable::axis, "the axis whose ranks share the experts");
  return kSchema.make(value, [](const ExpertsTable& table) {
    const int ranks = ranks_of(table.axis, table.experts, kSchema.name());
    return make_experts_of(table.expert, {table.experts, axis_name(table.axis, kSchema.name()), ranks});
  });
}

struct BranchTable {
  std::shared_ptr<Layer> layer;
  int64_t hidden = 0;
  bool gate = false;
};

std::shared_ptr<Layer> shared_expert(const Value& value) {
  static const auto kSchema = Schema<BranchTable>("moe.shared_expert")
                                  .required("layer", &BranchTable::layer, "the expert that all tokens use")
                                  .required("hidden", &BranchTable::hidden, "columns of a token", at_least(1))
                                  .optional("gate", &BranchTable::gate, "multiply by a learnt gate per token");
  return kSchema.make(value, [](const BranchTable& table) { return make_shared_expert(table.layer, table.hidden, table.gate); });
}

std::shared_ptr<Layer> residual_branch(const Value& value) {
  static const auto kSchema = Schema<BranchTable>("moe.residual_branch")
                                  .required("layer", &BranchTable::layer, "the dense branch that all tokens use")
                                  .required("hidden", &BranchTable::hidden, "columns of a token", at_least(1));
  return kSchema.make(value, [](const BranchTable& table) { return make_residual_branch(table.layer, table.hidden); });
}

}  // namespace

}  // namespace zt::moe

ZT_LUA_MODULE(moe) {
  using namespace zt::moe;  // NOLINT: only for the names registered here
  using zt::lua::made;
  module.from_lua("layers", "zt.moe.layers").from_lua("gpt", "zt.moe.gpt").from_lua("from_deepspeed", "zt.moe.from_deepspeed");
  module.function<made<router>>("router")
      .function<made<dispatch>>("dispatch")
      .function<made<combine>>("combine")
      .function<made<experts>>("experts")
      .function<made<shared_expert>>("shared_expert")
      .function<made<residual_branch>>("residual_branch");
}
