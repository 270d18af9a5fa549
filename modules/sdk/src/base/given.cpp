#include "zt/base/given.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "zt/base/tensor.h"

namespace zt {

namespace {

void add(const std::string& name, const Value& value, GivenOptions& given) {
  const std::string prefix = name.empty() ? name : name + ".";
  if (const auto* table = value.get_if<Value::Table>()) {
    for (const auto& [key, item] : *table) add(prefix + key, item, given);
  } else if (const auto* list = value.get_if<Value::List>()) {
    for (size_t i = 0; i < list->size(); ++i) add(fmt::format("{}{}", prefix, i + 1), (*list)[i], given);
  } else if (const auto* tensor = value.get_if<at::Tensor>()) {
    given[name] = describe(*tensor);
  } else if (value.get_if<Object>()) {
    given[name] = value.type_name();
  } else if (!value.is_nil()) {
    given[name] = value.to_json().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
}

}  // namespace

GivenOptions given_options(const Value& options) {
  GivenOptions given;
  add({}, options, given);
  return given;
}

}  // namespace zt
