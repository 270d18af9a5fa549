// The binding of zt.moe. The Lua file layers.lua joins the layers.
#include "exchange/exchange.h"
#include "experts/dense_branch.h"
#include "experts/experts_of.h"
#include "routing/router.h"
#include "zt/base/options.h"
#include "zt/comm/mesh.h"
#include "zt/lua/state.h"
#include "zt/model/precision.h"

namespace zt::moe {

namespace {

struct ExchangeTable {
  int64_t experts = 0, hidden = 0;
  std::shared_ptr<Axis> axis;
  std::string dispatcher = "all_to_all";
  std::optional<bool> overlap;
  std::optional<std::string> transport;
  bool shared = false;
  double planned_rows = 1;
  int64_t top_k = 0;
  std::optional<CapacityOptions> capacity;
};

const std::vector<std::string>& dispatchers() {
  static const std::vector<std::string> names{"all_to_all", "all_gather"};
  return names;
}

// Returns the ranks of the axis, 1 without one. Throws Misuse if they cannot share the experts evenly.
int ranks_of(const std::shared_ptr<Axis>& axis, int64_t experts, const std::string& path) {
  const int ranks = axis ? axis->size : 1;
  if (experts % ranks != 0)
    misuse("{}: {} experts cannot be divided over the {} ranks of axis '{}' evenly: change one of them", path, experts, ranks,
           axis->name);
  return ranks;
}

std::string name_of(const std::shared_ptr<Axis>& axis, const std::string& path) {
  if (!axis) return "";
  if (axis->names.size() > 1) misuse("{}: experts are spread over one axis, '{}' joins several", path, axis->name);
  return axis->name;
}

// The options of moe.dispatch and moe.combine.
Schema<ExchangeTable> exchange_schema(const char* name) {
  return Schema<ExchangeTable>(name)
      .required("experts", &ExchangeTable::experts, "number of experts", at_least(1))
      .required("hidden", &ExchangeTable::hidden, "columns of a token", at_least(1))
      .optional("axis", &ExchangeTable::axis, "the axis whose ranks share the experts")
      .optional("dispatcher", &ExchangeTable::dispatcher, "how tokens are sent", one_of(dispatchers()))
      .optional("overlap", &ExchangeTable::overlap, "send while other actions run; default: over nccl")
      .optional("transport", &ExchangeTable::transport, "dtype in which rows are sent, such as \"bf16\"; default: their own")
      .optional("shared", &ExchangeTable::shared, "add the value `shared`")
      .optional("planned_rows", &ExchangeTable::planned_rows, "of plans: rows of a rank, as a multiple of balanced routing's",
                above(0))
      .only_with("without capacity, which bounds the rows", [](const ExchangeTable& o) { return !o.capacity; })
      .optional("top_k", &ExchangeTable::top_k, "that of the router, for the capacity if experts choose", at_least(1))
      .optional("capacity", &ExchangeTable::capacity, "that of the router: with `pad`, no counts are exchanged");
}

ExchangeOptions parse_exchange(const Schema<ExchangeTable>& schema, const Value& value, std::string& dispatcher) {
  const ExchangeTable table = schema.parse(value);
  ExchangeOptions options;
  options.experts = table.experts;
  options.hidden = table.hidden;
  options.axis = name_of(table.axis, schema.name());
  options.ranks = ranks_of(table.axis, table.experts, schema.name());
  const bool overlaps = table.overlap.value_or(table.axis && table.axis->link.backend == "nccl");
  options.transport.async = overlaps ? Async::yes : Async::no;
  if (table.transport) options.transport.dtype = parse_float_type(*table.transport, schema.name() + ".transport");
  options.has_shared = table.shared;
  options.planned_rows = table.planned_rows;
  options.top_k = table.top_k;
  options.capacity = table.capacity;
  if (table.capacity && table.capacity->pad) options.padding = table.capacity;
  dispatcher = table.dispatcher;
  if (dispatcher == "all_gather" && (options.padding || table.transport))
    misuse("{}: capacity.pad and transport are for dispatcher = \"all_to_all\": leave them out with \"all_gather\"",
           schema.name());
  return options;
}

int router(lua_State* L) {
  const Value options = lua::check_value(L, 1);
  lua::push_made(L, make_router(parse_router(options)), options);
  return 1;
}

int dispatch(lua_State* L) {
  static const auto kSchema = exchange_schema("moe.dispatch");
  std::string dispatcher;
  const Value given = lua::check_value(L, 1);
  const ExchangeOptions options = parse_exchange(kSchema, given, dispatcher);
  lua::push_made(L, dispatcher == "all_to_all" ? make_dispatch(options) : make_gather_dispatch(options), given);
  return 1;
}

int combine(lua_State* L) {
  static const auto kSchema = exchange_schema("moe.combine");
  std::string dispatcher;
  const Value given = lua::check_value(L, 1);
  const ExchangeOptions options = parse_exchange(kSchema, given, dispatcher);
  lua::push_made(L, dispatcher == "all_to_all" ? make_combine(options) : make_gather_combine(options), given);
  return 1;
}

struct ExpertsTable {
  int64_t experts = 0;
  std::shared_ptr<Layer> expert;
  std::shared_ptr<Axis> axis;
};

int experts(lua_State* L) {
  static const auto kSchema = Schema<ExpertsTable>("moe.experts")
                                  .required("experts", &ExpertsTable::experts, "number of experts", at_least(1))
                                  .required("expert", &ExpertsTable::expert, "the layer that each expert is like")
                                  .optional("axis", &ExpertsTable::axis, "the axis whose ranks share the experts");
  const Value given = lua::check_value(L, 1);
  const ExpertsTable table = kSchema.parse(given);
  const int ranks = ranks_of(table.axis, table.experts, kSchema.name());
  lua::push_made(L, make_experts_of(table.expert, {table.experts, name_of(table.axis, kSchema.name()), ranks}), given);
  return 1;
}

struct BranchTable {
  std::shared_ptr<Layer> layer;
  int64_t hidden = 0;
  bool gate = false;
};

int shared_expert(lua_State* L) {
  static const auto kSchema = Schema<BranchTable>("moe.shared_expert")
                                  .required("layer", &BranchTable::layer, "the expert that all tokens use")
                                  .required("hidden", &BranchTable::hidden, "columns of a token", at_least(1))
                                  .optional("gate", &BranchTable::gate, "multiply by a learnt gate per token");
  const Value given = lua::check_value(L, 1);
  const BranchTable table = kSchema.parse(given);
  lua::push_made(L, make_shared_expert(table.layer, table.hidden, table.gate), given);
  return 1;
}

int residual_branch(lua_State* L) {
  static const auto kSchema = Schema<BranchTable>("moe.residual_branch")
                                  .required("layer", &BranchTable::layer, "the dense branch that all tokens use")
                                  .required("hidden", &BranchTable::hidden, "columns of a token", at_least(1));
  const Value given = lua::check_value(L, 1);
  const BranchTable table = kSchema.parse(given);
  lua::push_made(L, make_residual_branch(table.layer, table.hidden), given);
  return 1;
}

}  // namespace

static void open_moe(lua::Module& module) {
  module.from_lua("layers", "zt.moe.layers").from_lua("gpt", "zt.moe.gpt").from_lua("from_deepspeed", "zt.moe.from_deepspeed");
  module.function<router>("router")
      .function<dispatch>("dispatch")
      .function<combine>("combine")
      .function<experts>("experts")
      .function<shared_expert>("shared_expert")
      .function<residual_branch>("residual_branch");
}

}  // namespace zt::moe

ZT_LUA_MODULE(moe) {
  zt::moe::open_moe(module);
}
