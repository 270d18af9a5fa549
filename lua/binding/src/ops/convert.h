// Converts Lua values to values of the dispatcher and back.
#pragma once

#include <ATen/core/ivalue.h>

#include "ops/match.h"

namespace zt::lua {

// Returns whether `text` names a dtype, layout, memory format or device, as `kind` says. Never throws: other texts are no match.
bool is_word(ArgumentKind kind, const char* text);

// Returns the device "cpu", "cuda" or "cuda:1". Throws Misuse for a GPU that this process cannot use, c10::Error for other texts.
c10::Device usable_device(const std::string& text);

// Returns the arguments for the dispatcher, in the order of the schema.
std::vector<c10::IValue> convert_arguments(const Match& match, const OperatorCall& call);

// Pushes a result: a tensor, number, boolean or string, a list as a table, None as nil. A tensor that is one of the arguments is
// pushed as the same Lua object.
void push_result(const c10::IValue& result, const OperatorCall& call);

}  // namespace zt::lua
