#include "ops/given.h"

#include <cmath>

#include "arguments.h"
#include "cdata.h"
#include "ops/random.h"
#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

// Reads an integral number as an integer. -0.0 stays a floating number: x:mul(-0.0) must keep its sign.
void read_number(GivenArgument& given, double number) {
  given.number = number;
  given.form = ArgumentForm::number;
  const bool is_integral = std::abs(number) <= static_cast<double>(kLargestExact) && number == std::floor(number);
  if (!is_integral || (number == 0 && std::signbit(number))) return;
  given.form = ArgumentForm::integer;
  given.integer = static_cast<int64_t>(number);
}

Elements read_elements(lua_State* L, int index) {
  Elements all;
  const int count = static_cast<int>(lua_objlen(L, index));
  for (int i = 1; i <= count; ++i) {
    lua_rawgeti(L, index, i);
    const int type = lua_type(L, -1);
    const bool is_integer = integer_at(L, -1).has_value();
    const bool is_tensor = tensor_box(L, -1) != nullptr;
    const bool is_none = type == LUA_TBOOLEAN && !lua_toboolean(L, -1);
    lua_pop(L, 1);
    all.integers &= is_integer;
    all.numbers &= is_integer || type == LUA_TNUMBER;
    all.booleans &= type == LUA_TBOOLEAN;
    all.tensors &= is_tensor;
    all.optional_tensors &= is_tensor || is_none;
  }
  return all;
}

void read_userdata(lua_State* L, GivenArgument& given) {
  given.box = tensor_box(L, given.index);
  if (given.box) {
    tensor_of(*given.box);  // throws Misuse for a released tensor
    given.form = ArgumentForm::tensor;
  } else if (const auto number = floating_at(L, given.index)) {
    given.form = ArgumentForm::number;
    given.number = *number;
  } else if (is_generator(L, given.index)) {
    given.form = ArgumentForm::generator;
  }
}

GivenArgument read(lua_State* L, int index) {
  GivenArgument given{.index = index, .form = ArgumentForm::other, .elements = {}};
  switch (lua_type(L, index)) {
    case LUA_TNIL:
      given.form = ArgumentForm::nil;
      break;
    case LUA_TBOOLEAN:
      given.form = ArgumentForm::boolean;
      break;
    case LUA_TNUMBER:
      read_number(given, lua_tonumber(L, index));
      break;
    case LUA_TSTRING:
      given.form = ArgumentForm::text;
      break;
    case LUA_TTABLE:
      given.form = ArgumentForm::list;
      given.elements = read_elements(L, index);
      break;
    case LUA_TUSERDATA:
      read_userdata(L, given);
      break;
    case kCdataType:
      if (const auto integer = int64_of_cdata(L, index)) {
        given.form = ArgumentForm::integer;
        given.integer = *integer;
        given.number = static_cast<double>(*integer);
      }
      break;
    default:
      break;
  }
  return given;
}

// Returns whether the value is a table of named arguments. Throws Misuse if the table also has list elements.
bool has_names(lua_State* L, int index) {
  if (!lua_istable(L, index)) return false;
  bool has_name = false;
  lua_pushnil(L);
  for (; lua_next(L, index); lua_pop(L, 1)) has_name |= lua_type(L, -2) == LUA_TSTRING;
  if (has_name && lua_objlen(L, index) > 0) {
    misuse("a table holds both named arguments and a list: give positional arguments before the table of named ones");
  }
  return has_name;
}

void read_named(OperatorCall& call, int index) {
  lua_State* L = call.L;
  lua_pushnil(L);
  while (lua_next(L, index)) {
    luaL_checkstack(L, LUA_MINSTACK, "too many named arguments");
    if (lua_type(L, -2) != LUA_TSTRING) {
      misuse("the table of named arguments also has the key {}, which is no name", text_of(L, -2));
    }
    const std::string name = lua_tostring(L, -2);
    lua_insert(L, -2);  // keeps the value on the stack, below the key that lua_next needs
    call.named.push_back({name, read(L, lua_gettop(L) - 1)});
  }
}

}  // namespace

const GivenArgument* OperatorCall::find(const std::string& name) const {
  for (const auto& each : named) {
    if (each.name == name) return &each.given;
  }
  return nullptr;
}

OperatorCall read_call(lua_State* L, CallStyle style) {
  OperatorCall call{L, style, {}, {}};
  int count = lua_gettop(L);
  const bool is_named = count > 0 && has_names(L, count);
  if (is_named) --count;
  for (int i = 1; i <= count; ++i) call.positional.push_back(read(L, i));
  if (is_named) read_named(call, count + 1);
  return call;
}

}  // namespace zt::lua
