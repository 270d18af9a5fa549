#include <fmt/format.h>

#include "arguments.h"
#include "binding_state.h"
#include "protected_call.h"
#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt {
ZT_DEFINE_OBJECT(lua::Callable, "function")
}

namespace zt::lua {

struct Callable::Impl {
  std::shared_ptr<BindingState> state;
  int reference;

  // Returns the coroutine that the function may run on now. Throws Misuse after lua_close and on another thread.
  lua_State* usable_state() const {
    if (!state->main) misuse("this Lua function cannot be called: its Lua state was closed");
    if (state->thread != std::this_thread::get_id()) {
      misuse("this Lua function was called on another thread than its Lua state's: hand the call to that thread");
    }
    return state->current;
  }
};

Callable::Callable(lua_State* L, int index) {
  check_function(L, index);
  BindingState& owner = binding_state(L);
  owner.free_pending();
  lua_pushvalue(L, index);
  impl_ = std::make_unique<Impl>(Impl{owner.shared_from_this(), luaL_ref(L, LUA_REGISTRYINDEX)});
}

Callable::~Callable() {
  impl_->state->free_later(impl_->reference);
}

void Callable::push(lua_State* L) const {
  if (&binding_state(L) != impl_->state.get()) misuse("a Lua function cannot be passed to another Lua state");
  lua_rawgeti(L, LUA_REGISTRYINDEX, impl_->reference);
}

lua_State* Callable::begin() {
  lua_State* L = impl_->usable_state();
  luaL_checkstack(L, LUA_MINSTACK, "calling a Lua function");
  push(L);
  return L;
}

std::string Callable::place() {
  lua_State* L = begin();
  lua_Debug info;
  lua_getinfo(L, ">S", &info);
  return info.linedefined > 0 ? fmt::format("{}:{}", info.short_src, info.linedefined) : info.short_src;
}

void add_text(const std::string& name, const std::shared_ptr<Callable>& function, OptionTexts& texts) {
  if (function) texts[name] = "the function at " + function->place();
}

void Callable::call(int arguments, int results) {
  lua_State* L = impl_->usable_state();
  const auto failure = protected_call(L, arguments, results);
  if (failure) failure->raise();
}

}  // namespace zt::lua
