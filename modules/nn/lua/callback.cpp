#include "callback.h"

#include <fmt/format.h>

namespace zt::nn {

std::string definition_of(lua::Callable& function) {
  lua_State* L = function.begin();
  lua_Debug info;
  lua_getinfo(L, ">S", &info);
  return info.linedefined > 0 ? fmt::format("{}:{}", info.short_src, info.linedefined) : info.short_src;
}

}  // namespace zt::nn
