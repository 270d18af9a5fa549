// What the binding keeps for one Lua state (all its coroutines).
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <lua.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tensor/memory.h"
#include "zt/process/world.h"

namespace zt::lua {

// The families of zt/base/error.h, in the order from the most general.
enum class Family { error, misuse, fault, aborted };

// Thread-safe: only `give_back`. All else belongs to the state's thread.
// Invariant: `main` is nullptr from the start of lua_close on; nothing in Lua may be touched then.
struct Context : std::enable_shared_from_this<Context> {
  lua_State* main = nullptr;
  lua_State* current = nullptr;  // the coroutine whose native call runs innermost: where callbacks may run
  std::thread::id thread = std::this_thread::get_id();
  World world;

  // The last native exception that became a Lua error: recognised by its text when it comes back to C++.
  std::string last_message;
  Family last_family = Family::error;
  std::string last_traceback;  // of the last Lua error that reached C++

  // Lua files whose chunk names ("@folder/file.lua") begin with one of these are a library's: errors name its caller's line.
  std::vector<std::string> library_folders;

  std::vector<std::function<void()>> at_script_end;

  TensorMemory memory;
  const void* tensor_metatable = nullptr;
  at::Generator generator;  // of random operators that were given none
  at::ScalarType default_dtype = at::kFloat;
  bool forbids_default_generator = false;  // inside a layer, whose numbers must not depend on the order of calls

  // Registry references whose owner was destroyed, perhaps on another thread; freed by the state's own thread.
  void give_back(int reference);
  void free_given_back();

 private:
  std::mutex mutex_;
  std::vector<int> given_back_;
};

// The context of L's state, made on first use.
Context& context(lua_State* L);

// For finalizers, which also run inside lua_close: nullptr once the context is gone.
Context* find_context(lua_State* L);

}  // namespace zt::lua
