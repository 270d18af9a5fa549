// Helpers for calls of Lua functions that a script gives as options.
#pragma once

#include <functional>
#include <string>

#include "zt/lua/state.h"

namespace zt::nn {

// Returns where a function is defined, for example "exp.lua:12".
std::string definition_of(lua::Callable& function);

// Restores the height of the Lua stack when a call returns or throws.
class StackScope {
 public:
  // `end`, if given, is called first: it invalidates the arguments of the call.
  StackScope(lua_State* L, int top, std::function<void()> end = nullptr) : L_(L), top_(top), end_(std::move(end)) {}
  ~StackScope() {
    if (end_) end_();
    lua_settop(L_, top_);
  }
  StackScope(const StackScope&) = delete;

 private:
  lua_State* L_;
  int top_;
  std::function<void()> end_;
};

}  // namespace zt::nn
