// 64-bit integers as LuaJIT cdata (1LL, 1ULL). Lua's C API has no functions for them.
#pragma once

#include <cstdint>
#include <lua.hpp>
#include <optional>

namespace zt::lua {

// LuaJIT's LUA_TCDATA. No public header declares it.
inline constexpr int kCdataType = 10;

// A Lua number holds every integer of at most this magnitude exactly.
inline constexpr int64_t kLargestExact = int64_t{1} << 53;

// Returns nullopt if the value is not an int64_t or uint64_t cdata. Throws Misuse if it is a uint64_t above 2^63 - 1.
std::optional<int64_t> int64_of_cdata(lua_State* L, int index);
void push_int64_cdata(lua_State* L, int64_t value);

// Returns the value of an integral number of at most 2^53 in magnitude or of a 64-bit cdata; nullopt for any other value.
std::optional<int64_t> integer_at(lua_State* L, int index);

}  // namespace zt::lua
