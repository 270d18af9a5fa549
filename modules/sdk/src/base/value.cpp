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

namespace {

// A deeper value would overflow the stack of functions that visit it.
constexpr int kMostLevels = 500;

Value value_of(const nlohmann::json& json, int level) {
  if (level > kMostLevels)
    misuse("the JSON is nested in more than {} levels, which no file of a model or its data has", kMostLevels);
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
      Value::List list;
      for (const auto& item : json) list.push_back(value_of(item, level + 1));
      return list;
    }
    case nlohmann::json::value_t::object: {
      Value::Table table;
      for (const auto& [key, item] : json.items()) table[key] = value_of(item, level + 1);
      return table;
    }
    default:
      return {};
  }
}

}  // namespace

Value Value::from_json(const nlohmann::json& json) {
  return value_of(json, 0);
}

}  // namespace zt
