#include <nlohmann/json.hpp>

#include "core/open.h"
#include "zt/base/error.h"

namespace zt::lua {

namespace {

// json.encode(value [, indent]): keys sorted; nan and infinities become null, an empty table {}; bytes that are no UTF-8
// become U+FFFD.
int encode(lua_State* L) {
  const auto json = check_value(L, 1).to_json();
  const int indent = is_absent(L, 2) ? -1 : static_cast<int>(check_integer(L, 2));
  push(L, json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace));
  return 1;
}

// json.decode(text): null becomes nil, also inside lists, where it leaves a hole.
int decode(lua_State* L) {
  const std::string text = check_string(L, 1);
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    misuse("not JSON, at byte {} of {}: {}", error.byte, text.size(), error.what());
  }
  push(L, Value::from_json(json));
  return 1;
}

}  // namespace

void open_json(Module& module) {
  module.table("json", [](Module& json) { json.function<encode>("encode").function<decode>("decode"); });
}

}  // namespace zt::lua
