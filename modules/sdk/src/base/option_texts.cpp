#include "zt/base/option_texts.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "zt/base/tensor.h"

namespace zt {

std::string member_name(const std::string& table, const std::string& key) {
  const auto is_word = [](char each) { return std::isalnum(static_cast<unsigned char>(each)) || each == '_'; };
  const bool is_plain =
      !key.empty() && !std::isdigit(static_cast<unsigned char>(key.front())) && std::ranges::all_of(key, is_word);
  if (!is_plain) return fmt::format("{}[\"{}\"]", table, key);
  return table.empty() ? key : table + "." + key;
}

void add_text(const std::string& name, const Value& value, OptionTexts& texts) {
  if (const auto* table = value.get_if<Value::Table>()) {
    if (table->empty() && !name.empty()) texts[name] = "{}";
    for (const auto& [key, item] : *table) add_text(member_name(name, key), item, texts);
  } else if (const auto* list = value.get_if<Value::List>()) {
    if (list->empty()) texts[name] = "{}";
    for (size_t i = 0; i < list->size(); ++i) add_text(fmt::format("{}[{}]", name, i + 1), (*list)[i], texts);
  } else if (const auto* tensor = value.get_if<at::Tensor>()) {
    texts[name] = describe(*tensor);
  } else if (value.get_if<Object>()) {
    texts[name] = value.type_name();
  } else if (const auto* number = value.get_if<double>()) {
    texts[name] = fmt::format("{}", *number);
  } else if (!value.is_nil()) {
    texts[name] = value.to_json().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
}

}  // namespace zt
