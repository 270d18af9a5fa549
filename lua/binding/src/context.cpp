#include "context.h"

#include <atomic>

#include "guard.h"
#include "zt/base/error.h"

namespace zt::lua {

namespace {

const char kContextKey = 0;  // its address is the registry key

// Every native call needs the context, and finding it costs a table access. So the context that this thread used last is cached.
// The registry's address identifies the state. The address may be reused after a lua_close, so `states_closed` is compared, too.
std::atomic<uint64_t> states_closed{0};
struct CachedContext {
  const void* registry = nullptr;
  uint64_t states_closed = 0;
  Context* context = nullptr;
};
thread_local CachedContext cached_context;

int close_context(lua_State* L) {
  auto* holder = static_cast<std::shared_ptr<Context>*>(lua_touserdata(L, 1));
  (*holder)->main = nullptr;
  (*holder)->current = nullptr;
  states_closed.fetch_add(1);
  lua_pushlightuserdata(L, const_cast<char*>(&kContextKey));
  lua_pushnil(L);
  lua_rawset(L, LUA_REGISTRYINDEX);
  std::destroy_at(holder);
  return 0;
}

lua_State* main_state(lua_State* L) {
  // LuaJIT cannot return the main state of a coroutine. So a context must be made outside of coroutines, as new_state does.
  const bool is_main = lua_pushthread(L) == 1;
  lua_pop(L, 1);
  if (!is_main) misuse("a module of ztoolkit must first be loaded outside of coroutines");
  return L;
}

Context& make_context(lua_State* L) {
  lua_State* const main = main_state(L);
  lua_pushlightuserdata(L, const_cast<char*>(&kContextKey));
  void* memory = lua_newuserdata(L, sizeof(std::shared_ptr<Context>));
  auto* holder = new (memory) std::shared_ptr<Context>(std::make_shared<Context>());
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, close_context);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
  (*holder)->main = main;
  (*holder)->current = main;
  return **holder;
}

}  // namespace

Context* find_context(lua_State* L) {
  const void* const registry = lua_topointer(L, LUA_REGISTRYINDEX);
  const uint64_t closed = states_closed.load(std::memory_order_relaxed);
  if (cached_context.registry == registry && cached_context.states_closed == closed) return cached_context.context;
  lua_pushlightuserdata(L, const_cast<char*>(&kContextKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  auto* holder = static_cast<std::shared_ptr<Context>*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  if (!holder) return nullptr;
  cached_context = {registry, closed, holder->get()};
  return holder->get();
}

Context& context(lua_State* L) {
  if (Context* found = find_context(L)) return *found;
  return make_context(L);
}

void Context::free_later(int reference) {
  const std::lock_guard lock(mutex_);
  pending_.push_back(reference);
}

void Context::free_pending() {
  const std::lock_guard lock(mutex_);
  for (const int reference : pending_) luaL_unref(main, LUA_REGISTRYINDEX, reference);
  pending_.clear();
}

const World& world(lua_State* L) {
  return context(L).world;
}

void set_world(lua_State* L, World world) {
  context(L).world = std::move(world);
}

}  // namespace zt::lua
