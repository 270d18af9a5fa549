// The dispatcher's schemas as plain data: what each ATen operator takes, in the form that matching needs.
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
  bool is_optional;  // nil is a value
  bool is_keyword_only;
  bool is_written;  // in place or out=: a number cannot stand for it
  bool takes_one;   // int[2]: a single integer stands for the list
  std::optional<c10::IValue> default_value;
};

struct Overload {
  c10::OperatorHandle handle;
  std::vector<Parameter> parameters;
  size_t positional;       // how many are not keyword-only
  size_t self_place;       // of the parameter that a method's object becomes
  bool takes_loose_sizes;  // x:view(2, 3) for x:view({2, 3}): the one positional parameter besides self is an int[]
  bool is_factory;         // makes tensors from no tensor: a dtype left out is the state's default
  bool is_out;             // writes into out=
  bool draws_unseen;       // draws random numbers and takes no generator

  std::string text() const;  // "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
};

struct Operator {
  std::string name;                 // without "aten::" and overload name
  std::vector<Overload> overloads;  // in the order of preference: out= last, shorter before longer
};

// nullptr: no such operator. The table is made once a process, from what LibTorch has registered; thread-safe.
const Operator* find_operator(std::string_view name);

// All names, sorted.
const std::vector<std::string>& operator_names();

const char* kind_text(ArgumentKind kind);  // "a tensor", "a list of integers"

}  // namespace zt::lua
