// The arguments of one operator call. They are read from Lua's stack once and then matched with every overload.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <lua.hpp>
#include <string>
#include <vector>

#include "box.h"

namespace zt::lua {

enum class ArgumentForm : uint8_t { nil, boolean, integer, number, text, tensor, list, generator, other };

// Whether all elements of a list are of a kind. Several may be true: an integer is also a number, an empty list is of every kind.
struct Elements {
  bool integers = true, numbers = true, booleans = true, tensors = true, optional_tensors = true;
};

struct GivenArgument {
  int index;  // stack index
  ArgumentForm form;
  Elements elements;         // set for a list
  TensorBox* box = nullptr;  // set for a tensor
  double number = 0;
  int64_t integer = 0;
};

struct NamedArgument {
  std::string name;
  GivenArgument given;
};

enum class CallStyle { function, method };  // the first argument of a method is for the parameter `self`

struct OperatorCall {
  lua_State* L;
  CallStyle style;
  c10::SmallVector<GivenArgument, 6> positional;
  std::vector<NamedArgument> named;

  const GivenArgument* find(const std::string& name) const;
};

// Reads all arguments on the stack. If the last argument is a table with names as keys, it holds the named arguments. Their
// values are pushed, and must stay on the stack until the call has ended.
OperatorCall read_call(lua_State* L, CallStyle style);

}  // namespace zt::lua
