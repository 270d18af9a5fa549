// The states of an optimizer that a script describes: {momentum = "like", row = "rows", count = function(shape) return {} end}.
#pragma once

#include <string>
#include <vector>

#include "zt/base/value.h"
#include "zt/model/unit.h"

namespace zt::lua {

// Returns why the name of an optimizer or a state is wrong; empty if it is not.
std::string check_name(const std::string& name);
// Returns what is wrong with a table of states; empty if nothing is.
std::string check_states(const Value::Table& states);
// Throws Misuse for a state that is not a number per element.
void check_flat(const Value::Table& states);
// Returns the state of a parameter of this shape. `given`: an entry of a table that has passed check_states. "rows" is the shape
// without its last dim and "columns" without the one before; of fewer than two dims, both are the whole shape. Throws Misuse for
// a function that returns no shape.
StateInfo state_of(const std::string& name, const Value& given, const std::vector<int64_t>& shape);

}  // namespace zt::lua
