// The arguments of one operator call, read from Lua's stack once and then compared with every overload.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <lua.hpp>
#include <string>
#include <vector>

#include "tensor/box.h"

namespace zt::lua {

enum class Form : uint8_t { nil, boolean, integer, number, text, tensor, list, generator, other };

// What all elements of a list are; several may hold (an integer is a number; an empty list is all).
struct Elements {
  bool integers = true, numbers = true, booleans = true, tensors = true, optional_tensors = true;
};

struct Given {
  int index;  // on the stack
  Form form;
  Elements elements;         // of a list
  TensorBox* box = nullptr;  // of a tensor
  double number = 0;
  int64_t integer = 0;
};

struct NamedGiven {
  std::string name;
  Given given;
};

enum class CallStyle { function, method };  // a method's first argument is the parameter `self`

struct Call {
  lua_State* L;
  CallStyle style;
  c10::SmallVector<Given, 6> positional;
  std::vector<NamedGiven> named;

  const Given* find(const std::string& name) const;
};

// Reads the stack's arguments 1 to n. A last table whose keys are names is the table of named arguments; its values are
// pushed and stay on the stack for the time of the call.
Call read_call(lua_State* L, CallStyle style);

}  // namespace zt::lua
