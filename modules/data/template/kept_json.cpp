#include "template/kept_json.h"

#include <charconv>

#include "zt/base/error.h"

namespace zt {
ZT_DEFINE_OBJECT(data::KeptJson, "Json")
}  // namespace zt

namespace zt::data {

namespace {

// Throws Fault if the text, which is JSON, has an integer of more than 63 bits: the parser would make it a floating-point number.
void check_integers(const std::string& text, const std::string& name) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') {
      for (++at; text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
    } else if (text[at] == '-' || (text[at] >= '0' && text[at] <= '9')) {
      const size_t end = std::min(text.find_first_not_of("+-.0123456789eE", at), text.size());
      const std::string number = text.substr(at, end - at);
      int64_t integer = 0;
      const auto [rest, error] = std::from_chars(number.data(), number.data() + number.size(), integer);
      if (error == std::errc::result_out_of_range && number.find_first_of(".eE") == std::string::npos)
        fault("{} has an integer of more than 63 bits, {}, at byte {}: write it as text", name, number, at);
      at = end - 1;
    }
  }
}

}  // namespace

std::shared_ptr<KeptJson> parse_kept_json(const std::string& text, const std::string& name) {
  try {
    auto json = std::make_shared<KeptJson>(KeptJson{nlohmann::ordered_json::parse(text)});
    check_integers(text, name);
    return json;
  } catch (const nlohmann::json::parse_error& error) {
    fault("{} is not JSON: it ends too early or has a mistake at byte {} of {}", name, error.byte, text.size());
  } catch (const nlohmann::json::out_of_range&) {
    fault("{} has a number beyond 1.8e308, the largest of 64 bits: write it as text", name);
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
