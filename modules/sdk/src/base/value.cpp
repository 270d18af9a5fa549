#include "zt/base/value.h"

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>

#include "zt/base/error.h"

namespace zt {

Value::Value(const at::Tensor& tensor) : data_(std::make_shared<const at::Tensor>(tensor)) {}

std::string Value::type_name() const {
  static const char* const kNames[] = {"nil", "a boolean", "an integer", "a number", "a string", "a list", "a table"};
  if (get_if<at::Tensor>()) return "a tensor";
  if (const auto* object = get_if<Object>()) return with_article(object->tag->name);
  return kNames[data_.index()];
}

nlohmann::json Value::to_json() const {
  if (const auto* v = get_if<bool>()) return *v;
  if (const auto* v = get_if<int64_t>()) return *v;
  if (const auto* v = get_if<double>()) return *v;
  if (const auto* v = get_if<std::string>()) return *v;
  if (const auto* list = get_if<List>()) {
    auto json = nlohmann::json::array();
    for (const auto& item : *list) json.push_back(item.to_json());
    return json;
  }
  if (const auto* table = get_if<Table>()) {
    auto json = nlohmann::json::object();
    for (const auto& [key, item] : *table) json[key] = item.to_json();
    return json;
  }
  if (is_nil()) return nullptr;
  misuse("{} cannot be written as JSON: only booleans, numbers, strings, lists and tables can", type_name());
}

Value Value::from_json(const nlohmann::json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::json::value_t::number_integer:
    case nlohmann::json::value_t::number_unsigned:
      return json.get<int64_t>();
    case nlohmann::json::value_t::number_float:
      return json.get<double>();
    case nlohmann::json::value_t::string:
      return json.get<std::string>();
    case nlohmann::json::value_t::array: {
      List list;
      for (const auto& item : json) list.push_back(from_json(item));
      return list;
    }
    case nlohmann::json::value_t::object: {
      Table table;
      for (const auto& [key, item] : json.items()) table[key] = from_json(item);
      return table;
    }
    default:
      return {};
  }
}

}  // namespace zt
