// Runs the actions of a kind that a script has defined, or whose handler it replaces, with zt.action.
#pragma once

#include <memory>
#include <string>

#include "zt/execute/resource_check.h"
#include "zt/lua/state.h"

namespace zt::lua {

// Returns the kinds whose handlers a script may replace: those that move a unit's gradients or parameters between ranks.
std::vector<std::string> replaceable_kinds();

class LuaHandler : public ActionHandler {
 public:
  // `name` is the name of the kind, for messages. With `writes_master`, the layers' copy of the parameters is rounded from the
  // master parameters after each action.
  LuaHandler(std::string name, std::shared_ptr<Callable> start, bool writes_master)
      : name_(std::move(name)),
        start_(std::move(start)),
        place_(start_->place()),
        writes_master_(writes_master),
        checks_(checks_resources()) {}

  // Calls start(ctx, action), which changes tensors in place and returns nothing or a Work: once, or for a replaced kind once for
  // each unit of a bucket. An action of the role update does nothing once NORM has found that the step makes no update.
  //
  // ctx: {step, loss, grad_norm, grad_divisor}, and as the action's target and buffers are: unit, {index, name, first, params}
  // and the tensors of all resources of units, by their names; position and layer, the same of a position and a layer; buffer,
  // the buffers of passes that the action names. Of units, shard, master, grad_shard, grad_sum and state.NAME [chunk] are of the
  // part that this rank owns. full and grad [padded] are the whole unit; they are nil if units share these buffers. Gradients and
  // state are nil for a frozen unit. grad_shard and grad hold grad_divisor times the gradient of the objective. For a replaced
  // kind, out is the tensor that the action fills, and grad is there also if units share the buffer.
  //
  // Throws Misuse if the function reads an unknown field of ctx or of a table in it, assigns any field, or returns another value;
  // with ZT_CHECK_RESOURCES=1 also if it reads a field that its kind does not declare.
  Work start(const Action& action, StepState& state) override;
  std::string place() const override { return place_; }

 private:
  Work call(const Action& action, int target, StepState& state);

  std::string name_;
  std::shared_ptr<Callable> start_;
  std::string place_;
  bool writes_master_;
  bool checks_;  // shows only what the kind declares
};

}  // namespace zt::lua
