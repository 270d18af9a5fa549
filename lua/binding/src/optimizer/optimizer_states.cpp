#include "optimizer/optimizer_states.h"

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

constexpr const char* kShapes[] = {"like", "scalar", "rows", "columns"};  // of a state, beside functions of the parameter's shape

// Calls the script's function(shape), which returns a shape and may return a dtype.
StateInfo called_state(const std::string& name, Callable& function, const std::vector<int64_t>& shape) {
  lua_State* L = function.begin();
  const StackScope restored(L, lua_gettop(L) - 1);
  push(L, Value(Value::List(shape.begin(), shape.end())));
  function.call(1, 2);
  StateInfo info{name, {}};
  const Value sizes = check_value(L, -2), dtype = check_value(L, -1);
  const auto* list = sizes.get_if<Value::List>();
  const auto* empty = sizes.get_if<Value::Table>();
  if (!list && !(empty && empty->empty())) misuse("it returned {} for the shape: return a list of sizes", sizes.type_name());
  for (const Value& size : list ? *list : Value::List()) {
    const auto* number = size.get_if<int64_t>();
    if (!number || *number < 0)
      misuse("it returned a shape with {}: give whole numbers from 0", number ? std::to_string(*number) : size.type_name());
    info.shape.push_back(*number);
  }
  if (const auto* word = dtype.get_if<std::string>()) {
    info.dtype = parse_dtype(*word);
    if (!at::isFloatingType(info.dtype)) misuse("it returned the dtype {}: states have a floating-point type", *word);
  } else if (!dtype.is_nil())
    misuse("it returned {} for the dtype: return a name such as \"float32\", or nothing", dtype.type_name());
  return info;
}

}  // namespace

std::string check_name(const std::string& name) {
  const auto is_word = [](char each) { return (each >= 'a' && each <= 'z') || (each >= '0' && each <= '9') || each == '_'; };
  if (!name.empty() && std::ranges::all_of(name, is_word)) return {};
  return "must consist of lower-case letters, digits and '_': checkpoints name the optimizer by it";
}

std::string check_states(const Value::Table& states) {
  for (const auto& [name, given] : states) {
    if (!check_name(name).empty()) return fmt::format("has the name '{}': use lower-case letters, digits and '_'", name);
    const auto* word = given.get_if<std::string>();
    const auto* object = given.get_if<Object>();
    if (word ? std::ranges::find(kShapes, *word) != std::end(kShapes) : object && object->as<Callable>()) continue;
    return fmt::format(
        "has {} = {}: give \"like\" (a number per parameter) or, in tensor scope, \"scalar\", \"rows\", \"columns\" or a "
        "function(shape) that returns a shape",
        name, word ? "\"" + *word + "\"" : given.type_name());
  }
  return {};
}

void check_flat(const Value::Table& states) {
  for (const auto& [name, given] : states) {
    const auto* word = given.get_if<std::string>();
    if (!word || *word != "like")
      misuse("zt.optimizer.states has {} of another shape, which needs whole tensors: give scope = \"tensor\", or \"like\"",
             name);
  }
}

StateInfo state_of(const std::string& name, const Value& given, const std::vector<int64_t>& shape) {
  if (const auto* object = given.get_if<Object>()) return called_state(name, *object->as<Callable>(), shape);
  const std::string& word = *given.get_if<std::string>();
  std::vector<int64_t> own = shape;
  if (word == "scalar") own.clear();
  else if (word != "like" && own.size() >= 2) own.erase(own.end() - (word == "rows" ? 1 : 2));
  return {name, own};
}

}  // namespace zt::lua
