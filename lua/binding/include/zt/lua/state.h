// Binds C++ to Lua: arguments, results, types, modules. Native code throws C++ exceptions. Every registered function runs in a
// guard that turns them into Lua errors with the script's file and line.
//
//   int scale(lua_State* L) {                       // a native function: arguments in, number of results out
//     lua::push(L, lua::check_tensor(L, 1) * lua::check_number(L, 2));
//     return 1;
//   }
//   ZT_LUA_MODULE(example) {                        // defines luaopen_zt_example
//     module.function<scale>("scale");
//     module.type<Thing>().method<thing_size>("size");
//   }
//
// A lua_State belongs to one thread. The check functions throw Misuse for wrong arguments.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <lua.hpp>
#include <memory>
#include <optional>
#include <string>

#include "zt/base/error.h"
#include "zt/base/object.h"
#include "zt/base/option_texts.h"
#include "zt/base/value.h"
#include "zt/build_id.h"
#include "zt/process/world.h"

namespace zt::lua {

using Function = int (*)(lua_State*);
class Module;

namespace detail {
int call_guarded(lua_State* L, Function function);
// Sets a field of the table on top of the stack. The function reads `number`, if there is one, by upvalue_number.
void set_field_function(lua_State* L, const char* name, lua_CFunction function, std::optional<int> number = {});
struct BuildInfo {
  const char* module;
  int abi;
  const char* build_id;
};
int open_module(lua_State* L, const BuildInfo& info, void (*open)(Module&));
}  // namespace detail

template <Function function>
int guarded(lua_State* L) {
  return detail::call_guarded(L, function);
}

// --- arguments: `index` as in Lua's C API; messages say "argument 2: a tensor expected, got a string" ---
at::Tensor check_tensor(lua_State* L, int index);
bool is_tensor(lua_State* L, int index);
// Makes later uses of this tensor by the script an error. For the parameters that a layer's forward gets as arguments.
void expire_parameter(lua_State* L, int index);
void expire_shard(lua_State* L, int index);  // the same for what the step of an optimizer gets
double check_number(lua_State* L, int index);
int64_t check_integer(lua_State* L, int index);  // accepts integral numbers and 64-bit cdata
bool check_boolean(lua_State* L, int index);
std::string check_string(lua_State* L, int index);
void check_function(lua_State* L, int index);
bool is_absent(lua_State* L, int index);  // none or nil
// Returns any value as a tree of zt::Value. Tables with the keys 1 to n become lists, tables with string keys tables, functions
// an Object that holds a Callable, and typed userdata their Object. Throws Misuse, with the path of the value, for other values
// and for cycles.
Value check_value(lua_State* L, int index);
Object check_object(lua_State* L, int index, const Tag& tag);
template <class T>
std::shared_ptr<T> check(lua_State* L, int index) {
  return std::static_pointer_cast<T>(check_object(L, index, tag_of<T>()).pointer);
}

// --- results ---
void push(lua_State* L, const at::Tensor& tensor);  // an undefined tensor becomes nil
void push(lua_State* L, const Value& value);
void push(lua_State* L, const Object& object);  // an object whose pointer is null becomes nil
template <class T>
void push(lua_State* L, std::shared_ptr<T> value) {
  push(L, Object::of<T>(std::move(value)));
}
inline void push(lua_State* L, double value) {
  lua_pushnumber(L, value);
}
inline void push(lua_State* L, bool value) {
  lua_pushboolean(L, value);
}
inline void push(lua_State* L, const std::string& value) {
  lua_pushlstring(L, value.data(), value.size());
}
void push(lua_State* L, int64_t value);  // a number up to a magnitude of 2^53, a 64-bit cdata above
inline void push(lua_State* L, int value) {
  push(L, int64_t{value});
}
template <class List>
void push_list(lua_State* L, const List& values) {
  lua_createtable(L, static_cast<int>(values.size()), 0);
  for (size_t i = 0; i < values.size(); ++i) {
    push(L, values[i]);
    lua_rawseti(L, -2, static_cast<int>(i + 1));
  }
}

// Holds a Lua function for C++. Calls throw Misuse on another thread than the lua_State's, and after lua_close. A Callable may
// outlive the lua_State and may be destroyed on any thread.
class Callable {
 public:
  Callable(lua_State* L, int index);
  ~Callable();
  Callable(const Callable&) = delete;
  // Pushes the function and returns the state. Then push the arguments on this state and call `call`.
  lua_State* begin();
  void push(lua_State* L) const;  // pushes the function; throws Misuse if L belongs to another Lua state
  std::string place();            // where the function is defined, for example "exp.lua:12"
  // Calls the function with the `arguments` values that were pushed since begin. Leaves `results` values on the stack.
  // Throws a Lua error as zt::Error. Its traceback is kept for the report of an error that no script catches. A C++ exception
  // that passed through Lua keeps its family.
  void call(int arguments, int results);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The text of an option that is a function: where it is defined.
void add_text(const std::string& name, const std::shared_ptr<Callable>& function, OptionTexts& texts);

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

// During its lifetime, operators of this state that draw random numbers throw Misuse unless they are given a generator. Layers
// use it: their random numbers must not depend on the order of calls.
class NoDefaultRandom {
 public:
  explicit NoDefaultRandom(lua_State* L);
  ~NoDefaultRandom();
  NoDefaultRandom(const NoDefaultRandom&) = delete;

 private:
  lua_State* L_;
  bool before_;
};

// Returns the world of this state. The host sets it before a script starts.
const World& world(lua_State* L);
void set_world(lua_State* L, World world);

// A native function: what `read`, a member, a member function or a function of a T, returns for argument 1.
template <class T, auto read>
int of_self(lua_State* L) {
  if constexpr (std::is_void_v<std::invoke_result_t<decltype(read), T&>>) return std::invoke(read, *check<T>(L, 1)), 0;
  else return push(L, std::invoke(read, *check<T>(L, 1))), 1;
}

// A native function: what `make` returns for the value of argument 1, such as a table of options.
template <auto make>
int made(lua_State* L) {
  return push(L, make(check_value(L, 1))), 1;
}

class TypeBuilderBase {
 protected:
  TypeBuilderBase(lua_State* L, const Tag& tag) : L_(L), tag_(tag) {}
  void add_method(const char* name, lua_CFunction function);
  void add_getter(const char* name, lua_CFunction function);
  void add_metamethod(const char* name, lua_CFunction function);
  lua_State* L_;
  const Tag& tag_;
};

// Adds methods to a typed userdata; `self` is argument 1. An unknown member is a Lua error that suggests the nearest name.
// Several modules may add to the same type. A member, a member function or a function of a T is a method or getter, too, if it
// needs no other arguments.
template <class T>
class TypeBuilder : TypeBuilderBase {
 public:
  explicit TypeBuilder(lua_State* L) : TypeBuilderBase(L, tag_of<T>()) {}
  template <Function function>
  TypeBuilder& method(const char* name) {
    add_method(name, guarded<function>);
    return *this;
  }
  template <auto read>
  requires std::invocable<decltype(read), T&> TypeBuilder& method(const char* name) { return method<of_self<T, read>>(name); }
  // Adds a field that is read without a call: axis.size.
  template <Function function>
  TypeBuilder& getter(const char* name) {
    add_getter(name, guarded<function>);
    return *this;
  }
  template <auto read>
  requires std::invocable<decltype(read), T&> TypeBuilder& getter(const char* name) { return getter<of_self<T, read>>(name); }
  // Sets the function for members that are neither methods nor getters: function(self, name) pushes the value or throws.
  template <Function function>
  TypeBuilder& fallback() {
    add_getter("*", guarded<function>);
    return *this;
  }
  // Sets a metamethod such as "__tostring", "__len", "__call". "__gc" and "__index" belong to the binding.
  template <Function function>
  TypeBuilder& metamethod(const char* name) {
    add_metamethod(name, guarded<function>);
    return *this;
  }
  template <auto read>
  requires std::invocable<decltype(read), T&> TypeBuilder& metamethod(const char* name) {
    return metamethod<of_self<T, read>>(name);
  }
};

// Returns the number with which the running function was registered (Module::function).
int upvalue_number(lua_State* L);

// Fills the table that `require "zt.NAME"` returns. Reading a name that it lacks is a Lua error that suggests the nearest one.
class Module {
 public:
  Module(lua_State* L, std::string name) : L_(L), name_(std::move(name)) {}
  template <Function native>
  Module& function(const char* name) {
    lua_State* L = L_;
    detail::set_field_function(L, name, guarded<native>);
    return *this;
  }
  // Several names may share a function: it gets `number` by upvalue_number.
  template <Function native>
  Module& function(const char* name, int number) {
    detail::set_field_function(L_, name, guarded<native>, number);
    return *this;
  }
  template <class T>
  TypeBuilder<T> type() {
    return TypeBuilder<T>(L_);
  }
  // Adds the function that the Lua module `source` ("zt.zero.gathered") returns. The module is loaded at the first call.
  Module& from_lua(const char* name, const char* source);
  // Adds a nested table: module.table("schedule", [](Module& m) { ... }).
  Module& table(const char* name, void (*fill)(Module&));
  lua_State* state() const { return L_; }

 private:
  lua_State* L_;
  std::string name_;  // "zt.pipe", or that of a nested table, "zt.pipe.schedule"
};

}  // namespace zt::lua

namespace zt {
ZT_OBJECT(lua::Callable)
}

// Defines luaopen_zt_NAME, the one exported symbol of a module. Opening a module throws Fault if its ABI number or build id are
// not those of this ztoolkit.
#define ZT_LUA_MODULE(NAME)                                                                 \
  static void zt_open_##NAME(::zt::lua::Module& module);                                    \
  extern "C" __attribute__((visibility("default"))) int luaopen_zt_##NAME(lua_State* L) {   \
    return ::zt::lua::detail::open_module(L, {#NAME, ZT_ABI, ZT_BUILD_ID}, zt_open_##NAME); \
  }                                                                                         \
  static void zt_open_##NAME(::zt::lua::Module& module)
