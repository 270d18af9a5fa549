#include "program/lua_handler.h"

#include <cmath>
#include <sstream>

#include "arguments.h"
#include "program/values.h"
#include "zt/base/error.h"

namespace zt::lua {

namespace {

// A table for a script that may only be read. A name in `names` without a field reads as nil; any other name is an error.
struct Record {
  const char* name;   // "unit"
  const char* names;  // "index name master"
  Value::Table fields;
  std::string undeclared = {};  // names of fields that the action must not touch
};

// The resource that a field of the record `unit` shows.
const char* resource_of_field(const std::string& field) {
  return field == "master" ? "master" : field == "full" ? "param" : "grad";
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// __index(record, key), for a key without a field. Upvalues: the record's name, the names that may be read, those that the action
// has not declared.
int read_field(lua_State* L) {
  const std::string key = text_of(L, 2);
  const std::vector<std::string> undeclared = words(lua_tostring(L, lua_upvalueindex(3)));
  if (std::ranges::find(undeclared, key) != undeclared.end()) {
    misuse("the action touches {}.{} and does not declare it: add \"{}\" to its reads or writes (found by ZT_CHECK_RESOURCES)",
           lua_tostring(L, lua_upvalueindex(1)), key, resource_of_field(key));
  }
  const std::vector<std::string> names = words(lua_tostring(L, lua_upvalueindex(2)));
  if (std::find(names.begin(), names.end(), key) != names.end()) return 0;
  misuse("{}.{} does not exist{}", lua_tostring(L, lua_upvalueindex(1)), key, suggest(key, names));
}

[[noreturn]] void refuse_assignment(const std::string& record, const std::string& key) {
  misuse("{}.{} is assigned, which would have no effect: change tensors in place, as in unit.master:copy_(values)", record, key);
}

// __newindex(record, key, value)
int assign_field(lua_State* L) {
  refuse_assignment(lua_tostring(L, lua_upvalueindex(1)), text_of(L, 2));
}

void push_record(lua_State* L, const Record& record) {
  push(L, Value(record.fields));
  lua_newtable(L);
  for (const auto& [event, function] : {std::pair{"__index", &guarded<read_field>}, {"__newindex", &guarded<assign_field>}}) {
    lua_pushstring(L, record.name);
    lua_pushstring(L, record.names);
    lua_pushstring(L, record.undeclared.c_str());
    lua_pushcclosure(L, function, 3);
    lua_setfield(L, -2, event);
  }
  lua_setmetatable(L, -2);
}

// Pushes a shallow copy of the table at `index`.
void push_copy(lua_State* L, int index) {
  index = absolute(L, index);
  lua_newtable(L);
  for (lua_pushnil(L); lua_next(L, index);) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, -4);
  }
}

bool is_same(lua_State* L, int a, int b) {
  if (lua_rawequal(L, a, b)) return true;
  const bool are_numbers = lua_type(L, a) == LUA_TNUMBER && lua_type(L, b) == LUA_TNUMBER;
  return are_numbers && std::isnan(lua_tonumber(L, a)) && std::isnan(lua_tonumber(L, b));
}

// Throws Misuse if a field of the record at `index` differs from the copy at `copy`: then the script has assigned it.
void check_unchanged(lua_State* L, const Record& record, int index, int copy) {
  for (const auto& [key, value] : record.fields) {
    lua_pushlstring(L, key.data(), key.size());
    lua_rawget(L, index);
    lua_pushlstring(L, key.data(), key.size());
    lua_rawget(L, copy);
    if (!is_same(L, -1, -2)) refuse_assignment(record.name, key);
    lua_pop(L, 2);
  }
}

Record unit_record(const StepState& state, int index) {
  const Unit& unit = state.units.at(index);
  Value::Table fields{{"index", index}, {"name", state.model->units[index].name}, {"master", unit.master}};
  // A buffer that units share may hold another unit's values now, so it is not shown.
  if (!unit.owns_shard()) fields["full"] = unit.full;
  if (unit.grad.defined()) fields["grad_shard"] = unit.grad_shard;
  if (unit.grad.defined() && !unit.owns_grad_shard()) fields["grad"] = unit.grad;
  return {"unit", "index name master grad_shard full grad", std::move(fields)};
}

Record state_record(const StepState& state) {
  return {"state", "step loss grad_norm grad_divisor",
          Value::Table{
              {"step", state.step}, {"loss", state.loss}, {"grad_norm", state.grad_norm}, {"grad_divisor", state.grad_divisor}}};
}

// Takes away the fields that show what the action has not declared.
void hide_undeclared(Record& unit, const Resources& declared) {
  const std::map<std::string, ResourceKind> kinds{{"master", ResourceKind::master},
                                                  {"full", ResourceKind::param},
                                                  {"grad", ResourceKind::grad},
                                                  {"grad_shard", ResourceKind::grad}};
  const auto has = [&](ResourceKind kind) {
    return std::ranges::find(declared.reads, kind, &Resource::kind) != declared.reads.end() ||
           std::ranges::find(declared.writes, kind, &Resource::kind) != declared.writes.end();
  };
  for (const auto& [field, kind] : kinds) {
    if (!has(kind) && unit.fields.erase(field) > 0) unit.undeclared += field + " ";
  }
}

// Restores the height of the stack on destruction, also after an exception.
struct StackHeight {
  lua_State* L;
  int height;
  ~StackHeight() { lua_settop(L, height); }
};

}  // namespace

Work LuaHandler::start(const Action& action, StepState& state) {
  const bool has_unit = action.target >= 0;
  Record unit = has_unit ? unit_record(state, action.target) : Record{"unit", "", {}};
  if (has_unit && checks_) hide_undeclared(unit, resources_of(action, *state.model));
  const Record step = state_record(state);
  lua_State* L = run_->begin();
  const int function = lua_gettop(L);
  const StackHeight restored{L, function - 1};
  if (has_unit) push_record(L, unit);
  else lua_pushnil(L);
  push_record(L, step);
  if (has_unit) push_copy(L, -2);
  else lua_pushnil(L);
  push_copy(L, -2);
  const int unit_at = function + 1, step_at = function + 2, unit_copy = function + 3, step_copy = function + 4;
  lua_pushvalue(L, function);
  push(L, to_value(action));
  lua_pushvalue(L, unit_at);
  lua_pushvalue(L, step_at);
  run_->call(3, LUA_MULTRET);
  for (int result = step_copy + 1; result <= lua_gettop(L); ++result) {
    if (lua_isnil(L, result)) continue;
    misuse(
        "the action {} returned {}: an action returns nothing; it changes tensors in place, and waits for works that it starts",
        name_, type_text(L, result));
  }
  if (has_unit) check_unchanged(L, unit, unit_at, unit_copy);
  check_unchanged(L, step, step_at, step_copy);
  if (writes_master_ && has_unit) state.units.at(action.target).round_master();
  return {};
}

}  // namespace zt::lua
