#include "program/lua_handler.h"

#include <cmath>
#include <sstream>

#include "arguments.h"
#include "box.h"
#include "program/values.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::lua {

namespace {

// A table for a script that may only be read. A name in `names` without a field reads as nil; any other name is an error.
struct ScriptRecord {
  std::string name;   // "unit"
  std::string names;  // "index name master"
  Value::Table fields;
  std::map<std::string, ScriptRecord> parts = {};  // fields that are records
  std::string undeclared = {};                     // "full=param": fields that the action must not touch, and their resource
  struct Shown {
    std::string name;
    at::Tensor view, own;  // what the script gets of a tensor, and the tensor
  };
  std::vector<Shown> tensors = {};
};

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// __index(record, key), for a key without a field. Upvalues: the record's name, the names that may be read, those that the action
// has not declared.
int read_field(lua_State* L) {
  const std::string key = text_of(L, 2);
  for (const std::string& word : words(lua_tostring(L, lua_upvalueindex(3)))) {
    if (!word.starts_with(key + "=")) continue;
    misuse("the action touches {}.{} and does not declare it: add \"{}\" to its reads or writes (found by ZT_CHECK_RESOURCES)",
           lua_tostring(L, lua_upvalueindex(1)), key, word.substr(key.size() + 1));
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

void push_record(lua_State* L, const ScriptRecord& record) {
  push(L, Value(record.fields));
  for (const auto& [field, part] : record.parts) {
    push_record(L, part);
    lua_setfield(L, -2, field.c_str());
  }
  lua_newtable(L);
  for (const auto& [event, function] : {std::pair{"__index", &guarded<read_field>}, {"__newindex", &guarded<assign_field>}}) {
    lua_pushstring(L, record.name.c_str());
    lua_pushstring(L, record.names.c_str());
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
void check_unchanged(lua_State* L, const ScriptRecord& record, int index, int copy) {
  const auto check = [&](const std::string& key) {
    lua_pushlstring(L, key.data(), key.size());
    lua_rawget(L, index);
    lua_pushlstring(L, key.data(), key.size());
    lua_rawget(L, copy);
    if (!is_same(L, -1, -2)) refuse_assignment(record.name, key);
    lua_pop(L, 2);
  };
  for (const auto& [key, value] : record.fields) check(key);
  for (const auto& [key, part] : record.parts) check(key);
}

// Throws Misuse if the script has given a view other memory or another shape, which the tensor itself does not have.
void check_views(const ScriptRecord& record) {
  for (const auto& [name, view, own] : record.tensors) {
    if (is_view_of(view, own)) continue;
    misuse(
        "the action gave {}.{}, which is {}, another shape or memory: change its elements in place, as in unit.master:copy_(values)",
        record.name, name, describe(own));
  }
  for (const auto& [key, part] : record.parts) check_views(part);
}

void add_view(ScriptRecord& record, const std::string& name, const at::Tensor& own) {
  record.tensors.push_back({name, own.detach(), own});
  record.fields[name] = record.tensors.back().view;
}

// Adds a tensor of a resource under its name, "grad_shard" or "state.exp_avg". An undefined one, and a buffer that may hold
// another unit's values now, reads as nil.
void add_tensor(ScriptRecord& record, const NamedTensor& named) {
  const size_t dot = named.name.find('.');
  const std::string field = named.name.substr(0, dot);
  record.names += " " + field;
  if (!named.tensor.defined() || named.memory == Memory::slot) return;
  if (dot == std::string::npos) {
    add_view(record, field, named.tensor);
    return;
  }
  ScriptRecord& part = record.parts[field];
  const std::string name = named.name.substr(dot + 1);
  part.name = record.name + "." + field;
  part.names += " " + name;
  add_view(part, name, named.tensor);
}

// Shows the tensors of all resources of the unit. `declared`: what the action may touch; null for everything.
ScriptRecord unit_record(const StepState& state, int index, const Resources* declared) {
  ScriptRecord record{"unit", "index name", {{"index", index}, {"name", state.model->units.at(index).name}}};
  const auto is_declared = [&](ResourceId type) {
    return !declared || std::ranges::find(declared->reads, type, &Resource::type) != declared->reads.end() ||
           std::ranges::find(declared->writes, type, &Resource::type) != declared->writes.end();
  };
  for (const ResourceId type : resource_ids()) {
    const TensorsOf* tensors = tensors_of(type);
    if (!tensors || type_of(type).index != Index::unit) continue;
    record.names += " " + type_of(type).name;
    for (const NamedTensor& named : (*tensors)({.type = type, .index = index}, state)) {
      if (is_declared(type)) add_tensor(record, named);
      else record.undeclared += fmt::format("{}={} ", named.name.substr(0, named.name.find('.')), type_of(type).name);
    }
  }
  return record;
}

ScriptRecord state_record(const StepState& state) {
  return {"state", "step loss grad_norm grad_divisor",
          Value::Table{
              {"step", state.step}, {"loss", state.loss}, {"grad_norm", state.grad_norm}, {"grad_divisor", state.grad_divisor}}};
}

}  // namespace

Work LuaHandler::start(const Action& action, StepState& state) {
  const bool has_unit = action.target >= 0;
  const Resources declared = resources_of(action, *state.model);
  const ScriptRecord unit =
      has_unit ? unit_record(state, action.target, checks_ ? &declared : nullptr) : ScriptRecord{"unit", "", {}};
  const ScriptRecord step = state_record(state);
  lua_State* L = run_->begin();
  const int function = lua_gettop(L);
  const StackScope restored(L, function - 1);
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
  check_views(unit);
  check_unchanged(L, step, step_at, step_copy);
  if (writes_master_ && has_unit) state.units.at(action.target).round_master();
  return {};
}

}  // namespace zt::lua
