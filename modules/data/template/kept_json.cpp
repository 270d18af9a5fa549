#include "template/kept_json.h"

#include "zt/base/error.h"

namespace zt {
ZT_DEFINE_OBJECT(data::KeptJson, "Json")
}  // namespace zt

namespace zt::data {

std::shared_ptr<KeptJson> parse_kept_json(const std::string& text, const std::string& name) {
  try {
    return std::make_shared<KeptJson>(KeptJson{nlohmann::ordered_json::parse(text)});
  } catch (const nlohmann::json::parse_error& error) {
    fault("{} is not JSON: it ends too early or has a mistake at byte {} of {}", name, error.byte, text.size());
  }
}

Value::Table fields_of(const KeptJson& json) {
  if (!json.content.is_object()) misuse("this JSON is {}: only an object has fields", json.content.type_name());
  Value::Table fields;
  for (const auto& [key, value] : json.content.items())
    fields[key] = Value(Object::of<KeptJson>(std::make_shared<KeptJson>(KeptJson{value})));
  return fields;
}

}  // namespace zt::data
