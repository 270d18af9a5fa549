// Programs, actions and what passes know of a model, as plain values: what Lua sees as tables.
#pragma once

#include "zt/base/value.h"
#include "zt/comm/mesh.h"
#include "zt/program/program.h"

namespace zt::lua {

// {kind = "F", target = 1, micro_batch = 0, keep = "inputs"}: attributes beside the named fields, absent where they mean nothing.
Value to_value(const Action& action);
Value to_value(const std::vector<Action>& actions);
Value to_value(const ModelInfo& model, const Coord& coord);

// Misuse that names the place: "actions[3].kind".
Action to_action(const Value& value, const std::string& path);
std::vector<Action> to_actions(const Value& value, const std::string& path);

template <class T>
Value to_list(const std::vector<T>& items) {
  Value::List list;
  for (const T& item : items) list.emplace_back(item);
  return list;
}

}  // namespace zt::lua
