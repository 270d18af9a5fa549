// Lua values for operators only: floating numbers by request, and generators.
#pragma once

#include <ATen/core/Generator.h>

#include <lua.hpp>
#include <optional>

#include "zt/base/object.h"

namespace zt::lua {

// zt.float(2): a floating number whose value is integral.
struct Floating {
  double value;
};
struct Generator {
  at::Generator generator;
};

std::optional<double> floating_at(lua_State* L, int index);
bool is_generator(lua_State* L, int index);

// Returns the state's own generator. (ATen's default generator is shared by all threads, and ranks may be threads.)
// Throws Misuse inside a layer.
at::Generator& own_generator(lua_State* L);

}  // namespace zt::lua

namespace zt {
ZT_OBJECT(lua::Floating)
ZT_OBJECT(lua::Generator)
}  // namespace zt
