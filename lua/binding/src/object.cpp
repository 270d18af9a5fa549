#include "object.h"

#include <algorithm>
#include <string>
#include <vector>

#include "arguments.h"
#include "guard.h"
#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

const char kTagKey = 0;  // its address is the key of the tag in a metatable

Object& object_at(lua_State* L, int index) {
  return *static_cast<Object*>(lua_touserdata(L, index));
}

int finalize(lua_State* L) {
  std::destroy_at(&object_at(L, 1));
  return 0;
}

int to_text(lua_State* L) {
  const Object& object = object_at(L, 1);
  push(L, fmt::format("{} {}", object.tag->name, fmt::ptr(object.pointer.get())));
  return 1;
}

int is_same(lua_State* L) {
  const bool both = object_tag(L, 1) && object_tag(L, 1) == object_tag(L, 2);
  push(L, both && object_at(L, 1).pointer == object_at(L, 2).pointer);
  return 1;
}

void add_names(lua_State* L, int table, std::vector<std::string>& names) {
  lua_pushnil(L);
  while (lua_next(L, table)) {
    names.push_back(text_of(L, -2));
    lua_pop(L, 1);
  }
}

// __index(self, name). Upvalues: the tables of methods and getters.
int index_member(lua_State* L) {
  lua_pushvalue(L, 2);
  lua_rawget(L, lua_upvalueindex(1));
  if (!lua_isnil(L, -1)) return 1;
  lua_pushvalue(L, 2);
  lua_rawget(L, lua_upvalueindex(2));
  if (!lua_isnil(L, -1)) {
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    return 1;
  }
  lua_pushstring(L, "*");
  lua_rawget(L, lua_upvalueindex(2));
  if (!lua_isnil(L, -1)) {
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_call(L, 2, 1);
    return 1;
  }
  std::vector<std::string> names;
  add_names(L, lua_upvalueindex(1), names);
  add_names(L, lua_upvalueindex(2), names);
  std::sort(names.begin(), names.end());  // so that the message is the same on every rank
  const std::string name = text_of(L, 2);
  misuse("{} has no member '{}'{}", with_article(object_at(L, 1).tag->name), name, suggest(name, names));
}

// Sets a field, and records that the function is a method.
void set_method(lua_State* L, const char* name, lua_CFunction function) {
  lua_pushcfunction(L, function);
  note_method(L, name);
  lua_setfield(L, -2, name);
}

// Sets the fields of the metatable on top of the stack: the tables "methods" and "getters", and Lua's own events. The getter "*"
// is the fallback for unknown members.
void fill_metatable(lua_State* L, const Tag& tag) {
  lua_pushlightuserdata(L, const_cast<char*>(&kTagKey));
  lua_pushlightuserdata(L, const_cast<Tag*>(&tag));
  lua_rawset(L, -3);
  lua_pushstring(L, tag.name);
  lua_setfield(L, -2, "__name");
  detail::set_field_function(L, "__gc", finalize);
  detail::set_field_function(L, "__eq", guarded<is_same>);
  detail::set_field_function(L, "__tostring", guarded<to_text>);
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "methods");
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_setfield(L, -4, "getters");
  lua_pushcclosure(L, guarded<index_member>, 2);
  lua_setfield(L, -2, "__index");
}

// Pushes the metatable of the type, made on first use.
void push_metatable(lua_State* L, const Tag& tag) {
  if (push_registry_table(L, &tag)) fill_metatable(L, tag);
}

}  // namespace

const Tag* object_tag(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return nullptr;
  lua_pushlightuserdata(L, const_cast<char*>(&kTagKey));
  lua_rawget(L, -2);
  const auto* tag = static_cast<const Tag*>(lua_touserdata(L, -1));
  lua_pop(L, 2);
  return tag;
}

Object check_object(lua_State* L, int index, const Tag& tag) {
  if (object_tag(L, index) != &tag) wrong_argument(L, index, with_article(tag.name));
  return object_at(L, index);
}

void push(lua_State* L, const Object& object) {
  if (!object.pointer) return lua_pushnil(L);
  if (const auto callable = object.as<Callable>()) return callable->push(L);
  push_metatable(L, *object.tag);
  new (lua_newuserdata(L, sizeof(Object))) Object(object);
  lua_insert(L, -2);
  lua_setmetatable(L, -2);
}

void TypeBuilderBase::add_method(const char* name, lua_CFunction function) {
  push_metatable(L_, tag_);
  lua_getfield(L_, -1, "methods");
  set_method(L_, name, function);
  lua_pop(L_, 2);
}
void TypeBuilderBase::add_getter(const char* name, lua_CFunction function) {
  push_metatable(L_, tag_);
  lua_getfield(L_, -1, "getters");
  detail::set_field_function(L_, name, function);
  lua_pop(L_, 2);
}
void TypeBuilderBase::add_metamethod(const char* name, lua_CFunction function) {
  push_metatable(L_, tag_);
  detail::set_field_function(L_, name, function);
  lua_pop(L_, 1);
}

}  // namespace zt::lua
