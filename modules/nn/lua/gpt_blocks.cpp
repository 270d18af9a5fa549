#include "gpt_blocks.h"

#include "zt/lua/state.h"

namespace zt::nn {

namespace {

Value method_of(lua::Callable& method, int64_t block) {
  const auto about = [&] {
    return fmt::format("nn.gpt: the function 'context.method' at {}, for block {}", method.place(), block);
  };
  return with_context(about, [&] {
    lua_State* L = method.begin();
    const lua::StackScope scope(L, lua_gettop(L) - 1);
    lua::push(L, block);
    method.call(1, 1);
    const Value returned = lua::check_value(L, -1);
    if (!returned.get_if<std::string>()) misuse("it returned {}: return the name of a method", returned.type_name());
    return returned;
  });
}

}  // namespace

std::vector<int64_t> windows_of(const Value& window, int64_t blocks) {
  std::vector<int64_t> windows;
  if (window.get_if<Value::List>() || window.get_if<Value::Table>()) convert(window, "nn.gpt.window", windows);
  else windows.assign(static_cast<size_t>(blocks), 0);
  if (std::ssize(windows) != blocks)
    misuse("nn.gpt.window is a list of {} for {}: give one number per block, or one for all",
           counted(std::ssize(windows), "number"), counted(blocks, "block"));
  if (!window.get_if<Value::List>() && !window.is_nil()) {
    int64_t each = 0;
    convert(window, "nn.gpt.window", each);
    windows.assign(static_cast<size_t>(blocks), each);
  }
  for (const int64_t each : windows) {
    const std::string complaint = at_least(0)(each);
    if (!complaint.empty()) misuse("nn.gpt.window {}", complaint);
  }
  return windows;
}

std::optional<ContextOptions> context_of(const Value& context, int64_t block) {
  std::optional<ContextOptions> options;
  const auto* table = context.get_if<Value::Table>();
  if (!table) {
    convert(context, "nn.gpt.context", options);
    return options;
  }
  Value::Table of_block = *table;
  const auto method = of_block.find("method");
  const auto* object = method == of_block.end() ? nullptr : method->second.get_if<Object>();
  const auto function = object ? object->as<lua::Callable>() : nullptr;
  if (function) method->second = method_of(*function, block);
  const auto* name = function ? method->second.get_if<std::string>() : nullptr;
  if (name && *name == word_of(ContextMethod::ulysses)) of_block.erase("heads_at_once");  // it is for the other blocks
  convert(Value(std::move(of_block)), "nn.gpt.context", options);
  return options;
}

}  // namespace zt::nn
