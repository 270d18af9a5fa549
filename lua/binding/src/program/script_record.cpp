#include "program/script_record.h"

#include <cmath>
#include <sstream>

#include "arguments.h"
#include "box.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::lua {

namespace {

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
  const std::string record = lua_tostring(L, lua_upvalueindex(1));
  misuse("{}.{} does not exist{}{}", record, key, suggest(key, names),
         record == "ctx.buffer" ? "; an action names its buffers, as in zt.action{buffers = {...}}" : "");
}

[[noreturn]] void refuse_assignment(const std::string& record, const std::string& key) {
  misuse("{}.{} is assigned, which would have no effect: change tensors in place, as in ctx.unit.master:copy_(values)", record,
         key);
}

// __newindex(record, key, value)
int assign_field(lua_State* L) {
  refuse_assignment(lua_tostring(L, lua_upvalueindex(1)), text_of(L, 2));
}

bool is_same(lua_State* L, int a, int b) {
  if (lua_rawequal(L, a, b)) return true;
  const bool are_numbers = lua_type(L, a) == LUA_TNUMBER && lua_type(L, b) == LUA_TNUMBER;
  return are_numbers && std::isnan(lua_tonumber(L, a)) && std::isnan(lua_tonumber(L, b));
}

void push_field(lua_State* L, int table, const std::string& key) {
  table = absolute(L, table);
  lua_pushlstring(L, key.data(), key.size());
  lua_rawget(L, table);
}

}  // namespace

void ScriptRecord::add(const std::string& field, Value value) {
  names += " " + field;
  fields[field] = std::move(value);
}

ScriptRecord& ScriptRecord::part(const std::string& field) {
  const auto [found, is_new] = parts.try_emplace(field);
  if (is_new) {
    names += " " + field;
    found->second.name = name + "." + field;
  }
  return found->second;
}

void ScriptRecord::add_view(const std::string& field, const at::Tensor& own) {
  tensors.push_back({field, own.detach(), own});
  add(field, tensors.back().view);
}

void ScriptRecord::add_tensor(const NamedTensor& named) {
  const size_t dot = named.name.find('.');
  const std::string field = named.name.substr(0, dot);
  if (!named.tensor.defined()) names += " " + field;
  else if (dot == std::string::npos) add_view(field, named.tensor);
  else part(field).add_view(named.name.substr(dot + 1), named.tensor);
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

namespace {

// __index(table, key). Upvalue: the table's name.
int refuse_field(lua_State* L) {
  std::vector<std::string> names;
  for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING) names.emplace_back(lua_tostring(L, -2));
  }
  const std::string key = text_of(L, 2);
  misuse("{}.{} does not exist{}", lua_tostring(L, lua_upvalueindex(1)), key, suggest(key, names));
}

}  // namespace

void refuse_unknown(lua_State* L, const char* name) {
  if (luaL_newmetatable(L, (std::string("zt.fields of ") + name).c_str())) {
    lua_pushstring(L, name);
    lua_pushcclosure(L, &guarded<refuse_field>, 1);
    lua_setfield(L, -2, "__index");
  }
  lua_setmetatable(L, -2);
}

// The copy holds the values of fields, and for a part both the table itself, under "=NAME", and a copy of it, under NAME.
void push_copy(lua_State* L, const ScriptRecord& record, int index) {
  index = absolute(L, index);
  luaL_checkstack(L, LUA_MINSTACK, "the context of an action");
  lua_newtable(L);
  for (const auto& [key, value] : record.fields) {
    push_field(L, index, key);
    lua_setfield(L, -2, key.c_str());
  }
  for (const auto& [key, part] : record.parts) {
    push_field(L, index, key);
    push_copy(L, part, -1);
    lua_setfield(L, -3, key.c_str());
    lua_setfield(L, -2, ("=" + key).c_str());
  }
}

void check_unchanged(lua_State* L, const ScriptRecord& record, int index, int copy) {
  index = absolute(L, index);
  copy = absolute(L, copy);
  const auto check = [&](const std::string& key, const std::string& copied) {
    push_field(L, index, key);
    push_field(L, copy, copied);
    if (!is_same(L, -1, -2)) refuse_assignment(record.name, key);
    lua_pop(L, 2);
  };
  for (const auto& [key, value] : record.fields) check(key, key);
  for (const auto& [key, part] : record.parts) {
    check(key, "=" + key);
    push_field(L, index, key);
    push_field(L, copy, key);
    check_unchanged(L, part, -2, -1);
    lua_pop(L, 2);
  }
  for (const auto& [name, view, own] : record.tensors) {
    if (is_view_of(view, own)) continue;
    misuse(
        "the action gave {}.{}, which is {}, another shape or memory: change its elements in place, as in "
        "ctx.unit.master:copy_(values)",
        record.name, name, describe(own));
  }
}

}  // namespace zt::lua
