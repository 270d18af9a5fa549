#include "cdata.h"

#include <cmath>
#include <cstring>

#include "zt/base/error.h"

namespace zt::lua {

namespace {

// classify(x): 1 for int64_t, 2 for uint64_t, else 0.  make(high, low): high * 2^32 + low as int64_t.
const char kHelpers[] = R"(
local ffi = require "ffi"
local signed, unsigned = ffi.typeof "int64_t", ffi.typeof "uint64_t"
local function classify(x) return ffi.istype(signed, x) and 1 or ffi.istype(unsigned, x) and 2 or 0 end
local function make(high, low) return signed(high) * 4294967296LL + signed(low) end
return classify, make
)";
const char kClassifyKey = 0, kMakeKey = 0;  // their addresses are registry keys

void push_helper(lua_State* L, const char* key) {
  lua_pushlightuserdata(L, const_cast<char*>(key));
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  if (luaL_loadbuffer(L, kHelpers, sizeof(kHelpers) - 1, "=cdata") != 0) lua_error(L);
  lua_call(L, 0, 2);
  for (const char* stored : {&kMakeKey, &kClassifyKey}) {
    lua_pushlightuserdata(L, const_cast<char*>(stored));
    lua_insert(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  push_helper(L, key);
}

}  // namespace

std::optional<int64_t> int64_of_cdata(lua_State* L, int index) {
  if (lua_type(L, index) != kCdataType) return std::nullopt;
  const void* data = lua_topointer(L, index);
  lua_pushvalue(L, index);
  push_helper(L, &kClassifyKey);
  lua_insert(L, -2);
  lua_call(L, 1, 1);
  const auto kind = lua_tointeger(L, -1);
  lua_pop(L, 1);
  if (kind == 0) return std::nullopt;
  int64_t value = 0;
  std::memcpy(&value, data, sizeof(value));
  if (kind == 2 && value < 0)
    misuse("the integer {}ULL is above 2^63 - 1, the largest that tensors hold", static_cast<uint64_t>(value));
  return value;
}

void push_int64_cdata(lua_State* L, int64_t value) {
  push_helper(L, &kMakeKey);
  lua_pushnumber(L, static_cast<double>(value >> 32));
  lua_pushnumber(L, static_cast<double>(value & 0xffffffff));
  lua_call(L, 2, 1);
}

std::optional<int64_t> integer_at(lua_State* L, int index) {
  const int type = lua_type(L, index);
  if (type == kCdataType) return int64_of_cdata(L, index);
  if (type != LUA_TNUMBER) return std::nullopt;
  const double number = lua_tonumber(L, index);
  if (std::abs(number) > static_cast<double>(kLargestExact) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace zt::lua
