#include "context.h"

#include <atomic>

#include "guard.h"
#include "zt/base/error.h"

namespace zt::lua {

namespace {

const char kContextKey = 0;  // its address is the registry key

// Looking a context up costs a table access, and every native call needs it: the last one used by this thread is remembered.
// The registry's address names the state; it can be reused after a lua_close, which `states_closed` makes visible.
std::atomic<uint64_t> states_closed{0};
struct Remembered {
  const void* registry = nullptr;
  uint64_t states_closed = 0;
  Context* context = nullptr;
};
thread_local Remembered remembered;

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
  // LuaJIT has no way to ask a coroutine for its main state: contexts are made by new_state, outside of coroutines.
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
  if (remembered.registry == registry && remembered.states_closed == closed) return remembered.context;
  lua_pushlightuserdata(L, const_cast<char*>(&kContextKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  auto* holder = static_cast<std::shared_ptr<Context>*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  if (!holder) return nullptr;
  remembered = {registry, closed, holder->get()};
  return holder->get();
}

Context& context(lua_State* L) {
  if (Context* found = find_context(L)) return *found;
  return make_context(L);
}

void Context::give_back(int reference) {
  const std::lock_guard lock(mutex_);
  given_back_.push_back(reference);
}

void Context::free_given_back() {
  const std::lock_guard lock(mutex_);
  for (const int reference : given_back_) luaL_unref(main, LUA_REGISTRYINDEX, reference);
  given_back_.clear();
}

const World& world(lua_State* L) {
  return context(L).world;
}

void set_world(lua_State* L, World world) {
  context(L).world = std::move(world);
}

}  // namespace zt::lua
