// Checked access to the parts of tokenizer.json.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace zt::data::huggingface {

using JsonValue = nlohmann::json;

// Parses a JSON text. Throws Fault with `name` and the place if it is malformed or nested deeper than 64 levels.
JsonValue parse_json(std::string_view text, const std::string& name);

// The fields of one object. Each Fault that it throws names the file and the place of the object.
class JsonFields {
 public:
  // `place` is for messages: "'tokenizer.json', model". The value has to outlive the object. Throws Fault if it is not an object.
  JsonFields(const JsonValue& value, std::string place);

  const std::string& place() const { return place_; }
  // Returns the place of a field, for messages.
  std::string place_of(std::string_view name) const;

  // Throws Fault for a field that is not among `names`: it would be ignored.
  void allow_only(std::initializer_list<std::string_view> names) const;
  // Returns whether the field is there and not null.
  bool has(std::string_view name) const;

  // Return a field. Throw Fault if it is missing or has another type.
  const JsonValue& any(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::string text(std::string_view name) const;
  const JsonValue& list(std::string_view name) const;
  const JsonValue& object(std::string_view name) const;
  JsonFields fields(std::string_view name) const { return {object(name), place_of(name)}; }
  int64_t integer(std::string_view name, int64_t least, int64_t most) const;
  // Returns the only character of a text.
  std::string character(std::string_view name) const;

  // Return `otherwise` if the field is missing or null.
  bool flag(std::string_view name, bool otherwise) const { return has(name) ? flag(name) : otherwise; }
  std::string text(std::string_view name, const std::string& otherwise) const { return has(name) ? text(name) : otherwise; }

  // Throws Fault: "'NAME', PLACE: the KIND 'TYPE' of tokenizer.json is not supported: WHY".
  [[noreturn]] void refuse(std::string_view kind, std::string_view why) const;

 private:
  [[noreturn]] void refuse_type(std::string_view name, const JsonValue& value, std::string_view wanted) const;

  const JsonValue* value_;
  std::string place_;
};

// Returns an id, which is a number from 0 to 2^24 - 1. `place` is for the message of a Fault.
int32_t id_from(const JsonValue& value, const std::string& place);

}  // namespace zt::data::huggingface
