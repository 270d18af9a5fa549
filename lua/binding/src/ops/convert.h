// Lua values to the dispatcher's and back.
#pragma once

#include <ATen/core/ivalue.h>

#include "ops/match.h"

namespace zt::lua {

// Whether `text` names a dtype, a layout, a memory format or a device. Never throws: a string that is none is no match.
bool is_word(ArgumentKind kind, const char* text);

// The stack of arguments for the dispatcher, in the order of the schema.
std::vector<c10::IValue> convert_arguments(const Match& match, const Call& call);

// Pushes a result: tensors, numbers, booleans, strings, lists as tables; None as nil. `bytes_of` says what a tensor newly
// allocated. A tensor that is one of the arguments is pushed as the same Lua object.
void push_result(const c10::IValue& result, const Call& call);

}  // namespace zt::lua
