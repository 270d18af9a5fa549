#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/open.h"
#include "zt/base/error.h"

namespace zt::lua {

namespace {

// json.encode(value [, indent]): returns JSON text with sorted keys. nan and infinities become null, an empty table {}, bytes
// that are not UTF-8 U+FFFD.
int encode(lua_State* L) {
  const auto json = check_value(L, 1).to_json();
  const int indent = is_absent(L, 2) ? -1 : static_cast<int>(check_integer(L, 2));
  push(L, json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace));
  return 1;
}

// json.decode(text): returns the value. null becomes nil, which leaves a hole in a list.
int decode(lua_State* L) {
  const std::string text = check_string(L, 1);
  if (const size_t zero = text.find('\0'); zero != std::string::npos)
    misuse("not JSON, at byte {} of {}: a byte 0", zero + 1, text.size());
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const std::string cause = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    misuse("not JSON, at byte {} of {}: {}", error.byte, text.size(), cause.substr(std::min(cause.find("] ") + 2, cause.size())));
  } catch (const nlohmann::json::out_of_range&) {
    misuse("not JSON that can be read: it has a number beyond 1.8e308, the largest of 64 bits");
  }
  push(L, Value::from_json(json));
  return 1;
}

}  // namespace

void open_json(Module& module) {
  module.table("json", [](Module& json) { json.function<encode>("encode").function<decode>("decode"); });
}

}  // namespace zt::lua
