// 64-bit integers as LuaJIT's cdata (1LL, 1ULL), which Lua's C API does not know.
#pragma once

#include <cstdint>
#include <lua.hpp>
#include <optional>

namespace zt::lua {

// LUA_TCDATA of LuaJIT, which no public header names.
inline constexpr int kCdataType = 10;

// Largest magnitude below which a Lua number holds every integer.
inline constexpr int64_t kLargestExact = int64_t{1} << 53;

// nullopt: no int64_t or uint64_t cdata. Misuse for an unsigned one above 2^63 - 1.
std::optional<int64_t> int64_of_cdata(lua_State* L, int index);
void push_int64_cdata(lua_State* L, int64_t value);

// The integer that the value is: an integral number within 2^53, or a cdata. nullopt: anything else.
std::optional<int64_t> integer_at(lua_State* L, int index);

}  // namespace zt::lua
