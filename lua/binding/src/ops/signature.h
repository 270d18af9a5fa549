// The dispatcher's schemas as plain data, in the form that matching needs: the parameters of each ATen operator.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zt::lua {

enum class ArgumentKind : uint8_t {
  tensor,
  tensors,
  optional_tensors,
  integer,
  floating,
  scalar,
  boolean,
  text,
  integers,
  floatings,
  scalars,
  booleans,
  dtype,
  layout,
  memory_format,
  device,
  generator,
};

struct Parameter {
  std::string name;
  ArgumentKind kind;
  bool is_optional;  // nil is a valid value
  bool is_keyword_only;
  bool is_written;  // the operator writes into it (in place or out=), so it must be a tensor, not a number
  bool takes_one;   // int[2]: a single integer may stand for the list
  std::optional<c10::IValue> default_value;
};

struct Overload {
  c10::OperatorHandle handle;
  std::vector<Parameter> parameters;
  size_t positional;       // number of parameters that are not keyword-only
  size_t self_index;       // index of the parameter `self`, which a method's object becomes
  bool takes_loose_sizes;  // the only positional parameter besides self is an int[]: x:view(2, 3) is allowed for x:view({2, 3})
  bool is_factory;         // makes tensors and takes none: if the dtype is left out, it is the state's default
  bool is_out;             // writes into out=
  bool draws_without_generator;  // draws random numbers and takes no generator

  std::string text() const;  // "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
};

struct Operator {
  std::string name;                 // without "aten::" and overload name
  std::vector<Overload> overloads;  // in the order of preference: out= last, shorter before longer
};

// Returns null if there is no such operator. The table is made once per process, from LibTorch's dispatcher. Thread-safe.
const Operator* find_operator(std::string_view name);

// Returns the sorted names of all operators.
const std::vector<std::string>& operator_names();

const char* kind_text(ArgumentKind kind);  // "a tensor", "a list of integers"

}  // namespace zt::lua
