#include "arguments.h"

#include "box.h"
#include "cdata.h"
#include "object.h"
#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

const char kMethodNames = 0;  // its address is the registry's key of the table from methods to their names

// Returns the name of the running C function if it is a method, or an empty string.
std::string running_method(lua_State* L) {
  lua_Debug call;
  if (!lua_getstack(L, 0, &call) || !lua_getinfo(L, "f", &call)) return "";
  push_registry_table(L, &kMethodNames);
  lua_insert(L, -2);
  lua_rawget(L, -2);
  const std::string name = lua_isstring(L, -1) ? lua_tostring(L, -1) : "";
  lua_pop(L, 2);
  return name;
}

}  // namespace

bool push_registry_table(lua_State* L, const void* key) {
  lua_pushlightuserdata(L, const_cast<void*>(key));
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (!lua_isnil(L, -1)) return false;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushlightuserdata(L, const_cast<void*>(key));
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
  return true;
}

std::string type_text(lua_State* L, int index) {
  if (lua_isnone(L, index)) return "no value";
  switch (lua_type(L, index)) {
    case LUA_TNIL:
      return "nil";
    case kCdataType:
      return int64_of_cdata(L, index) ? "a 64-bit integer" : "a cdata";
    case LUA_TUSERDATA:
      if (const TensorBox* box = tensor_box(L, index)) return describe_box(*box);
      if (const Tag* tag = object_tag(L, index)) return with_article(tag->name);
      return "a userdata";
    default:
      return std::string("a ") + luaL_typename(L, index);
  }
}

std::string argument_name(lua_State* L, int index) {
  lua_Debug call;
  if (lua_getstack(L, 0, &call) && lua_getinfo(L, "n", &call) && std::string_view(call.namewhat) == "method") {
    if (index == 1) return "self";
    --index;
  }
  return fmt::format("argument {}", index);
}

void note_method(lua_State* L, const char* name) {
  push_registry_table(L, &kMethodNames);
  lua_pushvalue(L, -2);
  lua_pushstring(L, name);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void refuse_self(lua_State* L, const std::string& name, const std::string& expected) {
  misuse("'{0}' is a method: write object:{0}(...) with ':', not object.{0}(...). Its object must be {1}, got {2}", name,
         expected, type_text(L, 1));
}

void wrong_argument(lua_State* L, int index, const std::string& expected) {
  if (index == 1) {
    const std::string method = running_method(L);
    if (!method.empty()) refuse_self(L, method, expected);
  }
  misuse("{}: {} expected, got {}", argument_name(L, index), expected, type_text(L, index));
}

std::string text_of(lua_State* L, int index) {
  index = absolute(L, index);
  if (luaL_callmeta(L, index, "__tostring")) {
    const std::string text = lua_isstring(L, -1) ? lua_tostring(L, -1) : type_text(L, index);
    lua_pop(L, 1);
    return text;
  }
  if (const int type = lua_type(L, index); type == LUA_TSTRING || type == LUA_TNUMBER) {
    lua_pushvalue(L, index);
    size_t size = 0;
    const char* data = lua_tolstring(L, -1, &size);
    const std::string text(data, size);
    lua_pop(L, 1);
    return text;
  }
  if (lua_isboolean(L, index)) return lua_toboolean(L, index) ? "true" : "false";
  if (!lua_istable(L, index)) return type_text(L, index);
  std::string text = "{";
  lua_pushnil(L);
  while (lua_next(L, index)) {
    if (text.size() > 1) text += ", ";
    text += text_of(L, -2) + " = " + (lua_istable(L, -1) ? std::string("a table") : text_of(L, -1));
    lua_pop(L, 1);
  }
  return text + "}";
}

bool is_absent(lua_State* L, int index) {
  return lua_isnoneornil(L, index);
}

double check_number(lua_State* L, int index) {
  if (lua_type(L, index) == LUA_TNUMBER) return lua_tonumber(L, index);
  if (const auto integer = int64_of_cdata(L, index)) return static_cast<double>(*integer);
  wrong_argument(L, index, "a number");
}

int64_t check_integer(lua_State* L, int index) {
  if (const auto integer = integer_at(L, index)) return *integer;
  if (lua_type(L, index) == LUA_TNUMBER) {
    misuse("{}: an integer expected, got {}", argument_name(L, index), lua_tonumber(L, index));
  }
  wrong_argument(L, index, "an integer");
}

bool check_boolean(lua_State* L, int index) {
  if (!lua_isboolean(L, index)) wrong_argument(L, index, "a boolean");
  return lua_toboolean(L, index) != 0;
}

std::string check_string(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TSTRING) wrong_argument(L, index, "a string");
  size_t size = 0;
  const char* data = lua_tolstring(L, index, &size);
  return {data, size};
}

void check_function(lua_State* L, int index) {
  if (!lua_isfunction(L, index)) wrong_argument(L, index, "a function");
}

}  // namespace zt::lua
