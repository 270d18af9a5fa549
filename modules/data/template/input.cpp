#include "template/input.h"

#include <algorithm>
#include <limits>

#include "template/kept_json.h"

namespace zt::data::jinja {

namespace {

using OrderedJson = nlohmann::ordered_json;

// Returns the value as JSON. Names of tables ascend.
OrderedJson json_of(const zt::Value& value, const std::string& path, int depth) {
  if (depth > kMaxDepth) misuse("{} is nested deeper than {}, the limit of chat templates: make it flatter", path, kMaxDepth);
  if (value.is_nil()) return nullptr;
  if (const bool* boolean = value.get_if<bool>()) return *boolean;
  if (const int64_t* integer = value.get_if<int64_t>()) return *integer;
  if (const double* number = value.get_if<double>()) return *number;
  if (const std::string* text = value.get_if<std::string>()) return *text;
  if (const auto* table = value.get_if<zt::Value::Table>()) {
    OrderedJson object = OrderedJson::object();
    for (const auto& [key, item] : *table) object[key] = json_of(item, path + "." + key, depth + 1);
    return object;
  }
  if (const auto* list = value.get_if<zt::Value::List>()) {
    OrderedJson array = OrderedJson::array();
    for (size_t i = 0; i < list->size(); ++i) array.push_back(json_of((*list)[i], fmt::format("{}[{}]", path, i + 1), depth + 1));
    return array;
  }
  const auto* object = value.get_if<Object>();
  const auto kept = object ? object->as<KeptJson>() : nullptr;
  if (!kept)
    misuse("{} is {}, which a chat template cannot read: give strings, numbers, lists and tables", path, value.type_name());
  return kept->content;
}

// Returns the kind of a value in words of scripts.
std::string kind_of(const OrderedJson& value) {
  if (value.is_object()) return "a table";
  if (value.is_array()) return "a list";
  if (value.is_null()) return "nil";
  return fmt::format("a {}", value.type_name());
}

TemplateValue convert_value(TemplateRun& run, const OrderedJson& value, const std::string& path, char32_t marks, int depth);

TemplateValue convert_text(TemplateRun& run, const std::string& text, const std::string& path, char32_t marks) {
  auto characters = from_utf8(text, marks);
  if (!characters) misuse("{} is not UTF-8, which a chat template needs: convert it first", path);
  return run.text(std::move(*characters));
}

// Names of fields come from the input, too.
TemplateValue convert_object(TemplateRun& run, const OrderedJson& object, const std::string& path, char32_t marks, int depth) {
  TemplateDict dict;
  for (const auto& [key, value] : object.items()) {
    const std::string inner = path + "." + key;
    dict.set(run, convert_text(run, key, "the name of " + inner, marks), convert_value(run, value, inner, marks, depth));
  }
  return run.dict(std::move(dict));
}

TemplateValue convert_value(TemplateRun& run, const OrderedJson& value, const std::string& path, char32_t marks, int depth) {
  if (depth >= kMaxDepth) misuse("{} is nested deeper than {}, the limit of chat templates: make it flatter", path, kMaxDepth);
  if (value.is_null()) return {};
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_float()) return value.get<double>();
  if (value.is_number()) return value.get<int64_t>();
  if (value.is_string()) return convert_text(run, value.get_ref<const std::string&>(), path, marks);
  if (value.is_object()) return convert_object(run, value, path, marks, depth + 1);
  std::vector<TemplateValue> items;
  for (size_t i = 0; i < value.size(); ++i)
    items.push_back(convert_value(run, value[i], fmt::format("{}[{}]", path, i + 1), marks, depth + 1));
  return run.list(std::move(items));
}

// Templates such as Phi's write the special token of a role from its name: "<|" + role + "|>". So the role of a message does not
// count as content, if it is a word: no other text can spell more than one token.
bool is_role(const std::string& key, const OrderedJson& value) {
  const auto is_part_of_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return key == "role" && value.is_string() && std::ranges::all_of(value.get_ref<const std::string&>(), is_part_of_word);
}

// Fields that are null are left out, as by transformers.
TemplateValue convert_message(TemplateRun& run, const OrderedJson& message, const std::string& path) {
  TemplateDict dict;
  for (const auto& [key, value] : message.items()) {
    if (value.is_null()) continue;
    const std::string inner = path + "." + key;
    dict.set(run, convert_text(run, key, "the name of " + inner, kFromInput),
             convert_value(run, value, inner, is_role(key, value) ? 0 : kFromInput, 1));
  }
  return run.dict(std::move(dict));
}

// Adds the names under which templates read the reasoning of a message.
TemplateValue with_reasoning(TemplateRun& run, const TemplateValue& message) {
  const TemplateDict& fields = *message.dict();
  const TemplateValue standard = run.ascii("reasoning_content"), other = run.ascii("thinking");
  for (const TemplateValue& name : {standard, other, run.ascii("reasoning")}) {
    const TemplateValue* const found = fields.find(run, name);
    if (!found || found->is_none()) continue;
    const TemplateValue reasoning = *found;
    TemplateDict result;
    result.set(run, other, reasoning);
    for (const auto& [key, value] : fields.entries()) result.set(run, key, value);
    result.set(run, standard, reasoning);
    return run.dict(std::move(result));
  }
  return message;
}

}  // namespace

TemplateValue template_value(TemplateRun& run, const zt::Value& value, const std::string& path, char32_t marks) {
  return convert_value(run, json_of(value, path, 0), path, marks, 0);
}

TemplateValue template_messages(TemplateRun& run, const zt::Value& messages) {
  const OrderedJson list = json_of(messages, "messages", -1);  // a message is no level of nesting
  if (!list.is_array() && !(list.is_object() && list.empty()))
    misuse("the messages of a chat are {}: give a list of tables such as {{role = \"user\", content = \"...\"}}", kind_of(list));
  std::vector<TemplateValue> items;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i + 1);
    if (!list[i].is_object())
      misuse("{} is {}: give a table such as {{role = \"user\", content = \"...\"}}", path, kind_of(list[i]));
    items.push_back(with_reasoning(run, convert_message(run, list[i], path)));
  }
  return run.list(std::move(items));
}

}  // namespace zt::data::jinja
