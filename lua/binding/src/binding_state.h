// The binding's data for one Lua state, shared by its coroutines.
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

#include "memory.h"
#include "zt/process/world.h"

namespace zt::lua {

// The error types of zt/base/error.h.
enum class Family { error, misuse, fault, aborted };

// Only `free_later` is thread-safe. All other members belong to the state's thread.
// Invariant: `main` is null from the start of lua_close on. Then nothing of the Lua state may be touched.
struct BindingState : std::enable_shared_from_this<BindingState> {
  lua_State* main = nullptr;
  lua_State* current = nullptr;  // the coroutine whose native call is innermost; callbacks run on it
  std::thread::id thread = std::this_thread::get_id();
  World world;

  // The last native exception that became a Lua error. A Lua error that comes back to C++ with the same text gets this family.
  std::string last_message;
  Family last_family = Family::error;
  std::string last_raised;     // the message of the last Lua error that reached C++
  std::string last_traceback;  // its traceback

  // Prefixes of chunk names ("@folder/file.lua"). Files with such a prefix are library files: an error names its caller's line.
  std::vector<std::string> library_folders;

  std::vector<std::function<void()>> at_script_end;

  TensorMemory memory;
  const void* tensor_metatable = nullptr;
  at::Generator generator;  // for random operators that are called without a generator; undefined until first use
  at::ScalarType default_dtype = at::kFloat;
  bool forbids_default_generator = false;  // true inside a layer: its random numbers must not depend on the order of calls

  // free_later notes a registry reference whose owner was destroyed, on any thread. free_pending frees the noted references, on
  // the state's own thread.
  void free_later(int reference);
  void free_pending();

 private:
  std::mutex mutex_;
  std::vector<int> pending_;
};

// Returns the data of L's state. Makes them on first use.
BindingState& binding_state(lua_State* L);

// Returns the data, or null if there are none. Finalizers use it: in lua_close they may run after the data were destroyed.
BindingState* find_binding_state(lua_State* L);

}  // namespace zt::lua
