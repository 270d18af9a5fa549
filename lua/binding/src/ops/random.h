// Values that only operators take: forced floating numbers and generators.
#pragma once

#include <ATen/core/Generator.h>

#include <lua.hpp>
#include <optional>

#include "zt/base/object.h"

namespace zt::lua {

// zt.float(2): a number that is floating although it is integral.
struct Floating {
  double value;
};
struct Generator {
  at::Generator generator;
};

std::optional<double> floating_at(lua_State* L, int index);
bool is_generator(lua_State* L, int index);

// The state's own generator: ATen's default one is shared by all threads of the process, and with it the ranks that are threads.
// Misuse inside a layer.
at::Generator& own_generator(lua_State* L);

}  // namespace zt::lua

namespace zt {
ZT_OBJECT(lua::Floating)
ZT_OBJECT(lua::Generator)
}  // namespace zt
