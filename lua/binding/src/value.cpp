// Converts Lua values to trees of zt::Value and back.
#include "zt/base/value.h"

#include <cmath>

#include "arguments.h"
#include "cdata.h"
#include "object.h"
#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

// Reads one argument. Keeps the path of the current value for messages, and the enclosing tables to find cycles.
class ValueReader {
 public:
  ValueReader(lua_State* L, std::string path) : L_(L), path_(std::move(path)) {}

  Value read(int index) {
    switch (lua_type(L_, index)) {
      case LUA_TNONE:
      case LUA_TNIL:
        return {};
      case LUA_TBOOLEAN:
        return lua_toboolean(L_, index) != 0;
      case LUA_TSTRING:
        return check_string(L_, index);
      case LUA_TFUNCTION:
        return Object::of(std::make_shared<Callable>(L_, index));
      case LUA_TTABLE:
        return read_table(absolute(L_, index));
      case LUA_TUSERDATA:
        return read_userdata(index);
      default:
        return read_number(index);
    }
  }

 private:
  // Returns whether the value is -0.0. As an integer it would lose its sign.
  bool is_negative_zero(int index) {
    return lua_type(L_, index) == LUA_TNUMBER && lua_tonumber(L_, index) == 0 && std::signbit(lua_tonumber(L_, index));
  }

  Value read_number(int index) {
    if (const auto integer = integer_at(L_, index); integer && !is_negative_zero(index)) return *integer;
    if (lua_type(L_, index) == LUA_TNUMBER) return lua_tonumber(L_, index);
    misuse("{}: {} cannot be used here", path_, type_text(L_, index));
  }

  Value read_userdata(int index) {
    if (is_tensor(L_, index)) return check_tensor(L_, index);
    if (const Tag* tag = object_tag(L_, index)) return check_object(L_, index, *tag);
    misuse("{}: {} cannot be used here", path_, type_text(L_, index));
  }

  Value read_table(int index) {
    const void* identity = lua_topointer(L_, index);
    if (std::find(open_.begin(), open_.end(), identity) != open_.end()) misuse("{}: the table contains itself", path_);
    luaL_checkstack(L_, LUA_MINSTACK, "a table is nested too deeply");
    open_.push_back(identity);
    const size_t size = lua_objlen(L_, index);
    Value value = size > 0 ? read_list(index, size) : read_record(index);
    open_.pop_back();
    return value;
  }

  Value read_list(int index, size_t size) {
    size_t entries = 0;
    lua_pushnil(L_);
    for (; lua_next(L_, index); lua_pop(L_, 1)) ++entries;
    if (entries != size) misuse("{}: a table has either the keys 1 to n or names as keys, this one mixes them", path_);
    Value::List list;
    list.reserve(size);
    for (size_t i = 1; i <= size; ++i) {
      lua_rawgeti(L_, index, static_cast<int>(i));
      list.push_back(read_child(fmt::format("[{}]", i)));
    }
    return list;
  }

  Value read_record(int index) {
    Value::Table table;
    lua_pushnil(L_);
    while (lua_next(L_, index)) {
      if (lua_type(L_, -2) != LUA_TSTRING) {
        misuse("{}: the key {} is neither a name nor in a list from 1 to n without holes", path_, text_of(L_, -2));
      }
      const std::string key = check_string(L_, -2);
      table[key] = read_child("." + key);
    }
    return table;
  }

  // Reads and pops the value on top of the stack. Its path is path_ + step.
  Value read_child(const std::string& step) {
    const size_t length = path_.size();
    path_ += step;
    Value value = read(-1);
    path_.resize(length);
    lua_pop(L_, 1);
    return value;
  }

  lua_State* L_;
  std::string path_;
  std::vector<const void*> open_;
};

}  // namespace

Value check_value(lua_State* L, int index) {
  return ValueReader(L, argument_name(L, index)).read(index);
}

void push(lua_State* L, int64_t value) {
  if (value >= -kLargestExact && value <= kLargestExact) return lua_pushnumber(L, static_cast<double>(value));
  push_int64_cdata(L, value);
}

void push(lua_State* L, const Value& value) {
  luaL_checkstack(L, LUA_MINSTACK, "a value is nested too deeply");
  if (const auto* list = value.get_if<Value::List>()) return push_list(L, *list);
  if (const auto* table = value.get_if<Value::Table>()) {
    lua_createtable(L, 0, static_cast<int>(table->size()));
    for (const auto& [key, item] : *table) {
      push(L, key);
      push(L, item);
      lua_rawset(L, -3);
    }
    return;
  }
  if (const auto* v = value.get_if<bool>()) return push(L, *v);
  if (const auto* v = value.get_if<int64_t>()) return push(L, *v);
  if (const auto* v = value.get_if<double>()) return push(L, *v);
  if (const auto* v = value.get_if<std::string>()) return push(L, *v);
  if (const auto* v = value.get_if<at::Tensor>()) return push(L, *v);
  if (const auto* v = value.get_if<Object>()) return push(L, *v);
  lua_pushnil(L);
}

}  // namespace zt::lua
