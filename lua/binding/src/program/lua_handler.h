// Runs the actions of a kind that a script has defined with zt.action.
#pragma once

#include <memory>
#include <string>

#include "zt/execute/resource_check.h"
#include "zt/lua/state.h"

namespace zt::lua {

class LuaHandler : public ActionHandler {
 public:
  // `name` is the name of the kind, for messages. With `writes_master`, the layers' copy of the parameters is rounded from the
  // master parameters after each action.
  LuaHandler(std::string name, std::shared_ptr<Callable> run, bool writes_master)
      : name_(std::move(name)), run_(std::move(run)), writes_master_(writes_master), checks_(checks_resources()) {}

  // Calls run(action, unit, state), which returns nothing and changes tensors in place.
  //
  // unit: {index, name} and the tensors of all resources of units, by their names; nil for a kind without a unit. Those of the
  // SDK: shard, master, grad_shard, grad_sum and state.NAME [chunk] are of the part that this rank owns. full and grad [padded]
  // are the whole unit; they are nil if units share these buffers. Gradients and state are nil for a frozen unit. state: {step,
  // loss, grad_norm, grad_divisor}. grad_shard and grad hold grad_divisor times the gradient of the objective.
  //
  // Throws Misuse if the function reads an unknown field of unit or state, assigns any field, or returns a value; with
  // ZT_CHECK_RESOURCES=1 also if it reads a field of unit that its kind does not declare.
  Work start(const Action& action, StepState& state) override;

 private:
  std::string name_;
  std::shared_ptr<Callable> run_;
  bool writes_master_;
  bool checks_;  // shows only what the kind declares
};

}  // namespace zt::lua
