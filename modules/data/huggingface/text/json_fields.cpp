#include "huggingface/text/json_fields.h"

#include <algorithm>

#include "huggingface/text/unicode.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

constexpr int kDeepestJson = 64;

}  // namespace

JsonValue parse_json(std::string_view text, const std::string& name) {
  const auto check_depth = [&](int depth, JsonValue::parse_event_t, JsonValue&) {
    if (depth > kDeepestJson) fault("'{}' is not a tokenizer.json: it is nested deeper than {} levels", name, kDeepestJson);
    return true;
  };
  try {
    return JsonValue::parse(text.begin(), text.end(), check_depth);
  } catch (const JsonValue::exception& error) {
    fault("'{}' is not JSON: {}. Give the tokenizer.json of a model", name, error.what());
  }
}

JsonFields::JsonFields(const JsonValue& value, std::string place) : value_(&value), place_(std::move(place)) {
  if (!value.is_object()) fault("{}: this must be an object, not {}", place_, value.type_name());
}

std::string JsonFields::place_of(std::string_view name) const {
  return fmt::format("{}{}{}", place_, place_.ends_with('\'') ? ", " : ".", name);
}

void JsonFields::allow_only(std::initializer_list<std::string_view> names) const {
  for (const auto& [key, value] : value_->items()) {
    if (std::find(names.begin(), names.end(), key) != names.end()) continue;
    fault("{}: the option '{}' is not supported, and ignoring it could give other tokens", place_, key);
  }
}

bool JsonFields::has(std::string_view name) const {
  const auto found = value_->find(name);
  return found != value_->end() && !found->is_null();
}

const JsonValue& JsonFields::any(std::string_view name) const {
  const auto found = value_->find(name);
  if (found == value_->end()) fault("{}: the field '{}' is missing", place_, name);
  return *found;
}

void JsonFields::refuse_type(std::string_view name, const JsonValue& value, std::string_view wanted) const {
  fault("{}: this must be {}, not {}", place_of(name), wanted, value.type_name());
}

bool JsonFields::flag(std::string_view name) const {
  const JsonValue& value = any(name);
  if (!value.is_boolean()) refuse_type(name, value, "true or false");
  return value.get<bool>();
}

std::string JsonFields::text(std::string_view name) const {
  const JsonValue& value = any(name);
  if (!value.is_string()) refuse_type(name, value, "a text");
  return value.get<std::string>();
}

const JsonValue& JsonFields::list(std::string_view name) const {
  const JsonValue& value = any(name);
  if (!value.is_array()) refuse_type(name, value, "a list");
  return value;
}

const JsonValue& JsonFields::object(std::string_view name) const {
  const JsonValue& value = any(name);
  if (!value.is_object()) refuse_type(name, value, "an object");
  return value;
}

int64_t JsonFields::integer(std::string_view name, int64_t least, int64_t most) const {
  const JsonValue& value = any(name);
  const bool is_in_range = value.is_number_integer() && value.get<int64_t>() >= least && value.get<int64_t>() <= most &&
                           !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most));
  if (!is_in_range) fault("{}: this must be a whole number from {} to {}, not {}", place_of(name), least, most, value.dump());
  return value.get<int64_t>();
}

std::string JsonFields::character(std::string_view name) const {
  const std::string value = text(name);
  if (count_characters(value) != 1) fault("{}: this must be one character, not '{}'", place_of(name), value);
  return value;
}

void JsonFields::refuse(std::string_view kind, std::string_view why) const {
  fault("{}: the {} '{}' of tokenizer.json is not supported: {}", place_, kind, has("type") ? text("type") : "without a type",
        why);
}

int32_t id_from(const JsonValue& value, const std::string& place) {
  constexpr int64_t kMost = (1 << 24) - 1;  // tables have an entry for each id
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(kMost)) {
    fault("{}: an id must be a whole number from 0 to {}, not {}", place, kMost, value.is_structured() ? "a list" : value.dump());
  }
  return static_cast<int32_t>(value.get<int64_t>());
}

}  // namespace zt::data::huggingface
