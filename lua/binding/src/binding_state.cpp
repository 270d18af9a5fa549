#include "binding_state.h"

#include <atomic>

#include "guard.h"
#include "zt/base/error.h"

namespace zt::lua {

namespace {

const char kStateKey = 0;  // its address is the registry key

// Every native call needs its BindingState, and finding it costs a table access. So the one that this thread used last is cached.
// The registry's address identifies the state. The address may be reused after a lua_close, so `states_closed` is compared, too.
std::atomic<uint64_t> states_closed{0};
struct CachedState {
  const void* registry = nullptr;
  uint64_t states_closed = 0;
  BindingState* state = nullptr;
};
thread_local CachedState cached_state;

int close_state(lua_State* L) {
  auto* holder = static_cast<std::shared_ptr<BindingState>*>(lua_touserdata(L, 1));
  (*holder)->main = nullptr;
  (*holder)->current = nullptr;
  states_closed.fetch_add(1);
  lua_pushlightuserdata(L, const_cast<char*>(&kStateKey));
  lua_pushnil(L);
  lua_rawset(L, LUA_REGISTRYINDEX);
  std::destroy_at(holder);
  return 0;
}

lua_State* main_state(lua_State* L) {
  // LuaJIT cannot return the main state of a coroutine. So a BindingState must be made outside of coroutines, as new_state does.
  const bool is_main = lua_pushthread(L) == 1;
  lua_pop(L, 1);
  if (!is_main) misuse("a module of ztoolkit must first be loaded outside of coroutines");
  return L;
}

BindingState& make_state(lua_State* L) {
  lua_State* const main = main_state(L);
  lua_pushlightuserdata(L, const_cast<char*>(&kStateKey));
  void* memory = lua_newuserdata(L, sizeof(std::shared_ptr<BindingState>));
  auto* holder = new (memory) std::shared_ptr<BindingState>(std::make_shared<BindingState>());
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, close_state);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
  (*holder)->main = main;
  (*holder)->current = main;
  return **holder;
}

}  // namespace

BindingState* find_binding_state(lua_State* L) {
  const void* const registry = lua_topointer(L, LUA_REGISTRYINDEX);
  const uint64_t closed = states_closed.load(std::memory_order_relaxed);
  if (cached_state.registry == registry && cached_state.states_closed == closed) return cached_state.state;
  lua_pushlightuserdata(L, const_cast<char*>(&kStateKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  auto* holder = static_cast<std::shared_ptr<BindingState>*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  if (!holder) return nullptr;
  cached_state = {registry, closed, holder->get()};
  return holder->get();
}

BindingState& binding_state(lua_State* L) {
  if (BindingState* found = find_binding_state(L)) return *found;
  return make_state(L);
}

void BindingState::free_later(int reference) {
  const std::lock_guard lock(mutex_);
  pending_.push_back(reference);
}

void BindingState::free_pending() {
  const std::lock_guard lock(mutex_);
  for (const int reference : pending_) luaL_unref(main, LUA_REGISTRYINDEX, reference);
  pending_.clear();
}

const World& world(lua_State* L) {
  return binding_state(L).world;
}

void set_world(lua_State* L, World world) {
  binding_state(L).world = std::move(world);
}

}  // namespace zt::lua
