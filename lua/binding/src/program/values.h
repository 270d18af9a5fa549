// Converts programs, actions, a model's ModelInfo and the result of a step to plain values, which are tables in Lua.
#pragma once

#include "zt/base/value.h"
#include "zt/comm/mesh.h"
#include "zt/program/rank_program.h"
#include "zt/train/trainer.h"

namespace zt::lua {

// Returns {kind = "F", target = 1, micro_batch = 0, keep = "inputs"}. Attributes such as keep are fields of the same table.
// Fields that do not apply to the kind are absent.
Value to_value(const Action& action);
Value to_value(const std::vector<Action>& actions);
// Returns the list {name, shape, offset, ...} of a unit's parameters, as in the `info` of a pass.
Value unit_params(const ModelInfo& model, int unit, const Coord& coord);

// Returns {actions, mode, micro_batches, units, split_axes, precision}, which a pass may change but for mode and micro_batches.
Value to_value(const RankProgram& program);
// Returns the program with what a pass has changed. Throws Misuse, in words that follow "the pass NAME: ", for a wrong value.
RankProgram changed_program(RankProgram program, const Value& value);

// Returns the `info` of a pass. `shown`: the axes along which it may give ranks different programs, so that it sees the
// coordinates along these only, and no rank; unset: all.
Value to_value(const ModelInfo& model, const Coord& coord, const std::optional<std::vector<std::string>>& shown);
Value coord_value(const Coord& coord, const std::optional<std::vector<std::string>>& shown);  // info.coord
Value result_value(const StepResult& result);

// Throws Misuse that begins with the path of the wrong value: "actions[3].kind".
Action to_action(const Value& value, const std::string& path);
std::vector<Action> to_actions(const Value& value, const std::string& path);

template <class T>
Value to_list(const std::vector<T>& items) {
  Value::List list;
  for (const T& item : items) list.emplace_back(item);
  return list;
}

}  // namespace zt::lua
