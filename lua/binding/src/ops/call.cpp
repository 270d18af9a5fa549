#include "ops/call.h"

#include "arguments.h"
#include "ops/convert.h"
#include "ops/match.h"
#include "zt/base/error.h"
#include "zt/gemm/gemm_choice.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

// Returns whether this call draws random numbers. With a dropout probability of 0, or in evaluation, it does not.
bool draws(const Overload& overload, const std::vector<c10::IValue>& stack) {
  for (size_t i = 0; i < stack.size(); ++i) {
    const auto& name = overload.parameters[i].name;
    if ((name == "p" || name == "dropout" || name == "dropout_p") && stack[i].isDouble() && stack[i].toDouble() == 0)
      return false;
    if (name == "train" && stack[i].isBool() && !stack[i].toBool()) return false;
  }
  return true;
}

// Throws Misuse if the operator would draw from the process's default generator. Ranks that are threads share it, so their
// numbers would depend on the order of their calls.
void refuse_draws_without_generator(const Overload& overload, const std::vector<c10::IValue>& stack) {
  if (!overload.draws_without_generator || !draws(overload, stack)) return;
  misuse("{} draws random numbers and takes no generator: make the numbers first, by zt.rand, zt.randn or x:bernoulli",
         overload.text());
}

// Removes the argument requires_grad of a factory and returns its value. PyTorch's factories take it, but their schemas lack it.
bool take_requires_grad(const Operator& op, OperatorCall& call) {
  if (call.named.empty() || !op.overloads.front().is_factory) return false;
  const auto found = std::find_if(call.named.begin(), call.named.end(),
                                  [](const NamedArgument& named) { return named.name == "requires_grad"; });
  if (found == call.named.end()) return false;
  const bool wanted = check_boolean(call.L, found->given.index);
  call.named.erase(found);
  return wanted;
}

// Multiplies rows by a matrix as the GemmScope of this thread says, if there is one: x:matmul(w), zt.mm(x, w) and
// zt.linear(x, w, bias) of a layer whose rows must not depend on each other. Puts the product in the place of the arguments.
// Returns false for other operators.
bool multiply_in_scope(const std::string& name, std::vector<c10::IValue>& stack) {
  const bool is_linear = name == "linear";
  if (!GemmScope::current() || !(is_linear || name == "matmul" || name == "mm")) return false;
  const at::Tensor x = stack[0].toTensor(), w = stack[1].toTensor();
  if (w.dim() != 2 || x.dim() < 2 || x.size(-1) != w.size(is_linear ? 1 : 0)) return false;
  const auto bias = is_linear ? stack[2].toOptional<at::Tensor>() : std::nullopt;
  stack = {linear_by_scope(x, is_linear ? w : w.t(), bias)};
  return true;
}

// Upvalues: the operator, the call style.
int call_operator(lua_State* L) {
  const auto& op = *static_cast<const Operator*>(lua_touserdata(L, lua_upvalueindex(1)));
  OperatorCall call = read_call(L, static_cast<CallStyle>(lua_tointeger(L, lua_upvalueindex(2))));
  const bool has_self =
      call.style == CallStyle::function || (!call.positional.empty() && call.positional[0].form == ArgumentForm::tensor);
  if (!has_self) refuse_self(L, op.name, "a tensor");
  const bool requires_grad = take_requires_grad(op, call);
  const Match match = choose(op, call);
  auto stack = convert_arguments(match, call);
  refuse_draws_without_generator(*match.overload, stack);
  if (!multiply_in_scope(op.name, stack)) match.overload->handle.callBoxed(stack);
  if (requires_grad) stack.front().toTensor().set_requires_grad(true);
  luaL_checkstack(L, static_cast<int>(stack.size()) + LUA_MINSTACK, "an operator's results");
  for (const auto& result : stack) push_result(result, call);
  return static_cast<int>(stack.size());
}

}  // namespace

void push_operator(lua_State* L, const Operator& op, CallStyle style) {
  lua_pushlightuserdata(L, const_cast<Operator*>(&op));
  lua_pushinteger(L, static_cast<int>(style));
  lua_pushcclosure(L, guarded<call_operator>, 2);
}

bool push_operator(lua_State* L, const std::string& name, CallStyle style) {
  const Operator* op = find_operator(name);
  if (op) push_operator(L, *op, style);
  return op != nullptr;
}

}  // namespace zt::lua
