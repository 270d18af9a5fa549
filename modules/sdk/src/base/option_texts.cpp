#include "zt/base/option_texts.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "zt/base/tensor.h"

namespace zt {

void add_text(const std::string& name, const Value& value, OptionTexts& texts) {
  const std::string prefix = name.empty() ? name : name + ".";
  if (const auto* table = value.get_if<Value::Table>()) {
    for (const auto& [key, item] : *table) add_text(prefix + key, item, texts);
  } else if (const auto* list = value.get_if<Value::List>()) {
    for (size_t i = 0; i < list->size(); ++i) add_text(fmt::format("{}{}", prefix, i + 1), (*list)[i], texts);
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
