#include "template/input.h"

#include <algorithm>

namespace zt::data::jinja {

namespace {

TemplateValue convert_value(TemplateRun& run, const zt::Value& value, const std::string& path, char32_t marks, int depth);

TemplateValue convert_text(TemplateRun& run, const std::string& text, const std::string& path, char32_t marks) {
  auto characters = from_utf8(text, marks);
  if (!characters) misuse("{} is not UTF-8, which a chat template needs: convert it first", path);
  return run.text(std::move(*characters));
}

// Names of fields come from the input, too.
TemplateValue convert_table(TemplateRun& run, const zt::Value::Table& table, const std::string& path, char32_t marks, int depth) {
  TemplateDict dict;
  for (const auto& [key, value] : table) {
    const std::string inner = path + "." + key;
    dict.set(run, convert_text(run, key, "the name of " + inner, marks), convert_value(run, value, inner, marks, depth));
  }
  return run.dict(std::move(dict));
}

TemplateValue convert_value(TemplateRun& run, const zt::Value& value, const std::string& path, char32_t marks, int depth) {
  if (depth >= kMaxDepth) misuse("{} is nested deeper than {}, the limit of chat templates: make it flatter", path, kMaxDepth);
  if (value.is_nil()) return {};
  if (const bool* boolean = value.get_if<bool>()) return *boolean;
  if (const int64_t* integer = value.get_if<int64_t>()) return *integer;
  if (const double* number = value.get_if<double>()) return *number;
  if (const std::string* text = value.get_if<std::string>()) return convert_text(run, *text, path, marks);
  if (const auto* table = value.get_if<zt::Value::Table>()) return convert_table(run, *table, path, marks, depth + 1);
  const auto* list = value.get_if<zt::Value::List>();
  if (!list)
    misuse("{} is {}, which a chat template cannot read: give strings, numbers, lists and tables", path, value.type_name());
  std::vector<TemplateValue> items;
  for (size_t i = 0; i < list->size(); ++i)
    items.push_back(convert_value(run, (*list)[i], fmt::format("{}[{}]", path, i + 1), marks, depth + 1));
  return run.list(std::move(items));
}

// Templates such as Phi's write the special token of a role from its name: "<|" + role + "|>". So the role of a message does not
// count as content, if it is a word: no other text can spell more than one token.
bool is_role(const std::string& key, const zt::Value& value) {
  const std::string* text = value.get_if<std::string>();
  const auto is_part_of_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return key == "role" && text && std::ranges::all_of(*text, is_part_of_word);
}

TemplateValue convert_message(TemplateRun& run, const zt::Value::Table& message, const std::string& path) {
  TemplateDict dict;
  for (const auto& [key, value] : message) {
    const std::string inner = path + "." + key;
    dict.set(run, convert_text(run, key, "the name of " + inner, kFromInput),
             convert_value(run, value, inner, is_role(key, value) ? 0 : kFromInput, 1));
  }
  if (message.contains("tool_calls") && !message.contains("content")) dict.set(run, run.ascii("content"), {});
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
  return convert_value(run, value, path, marks, 0);
}

TemplateValue template_messages(TemplateRun& run, const zt::Value& messages) {
  const auto* list = messages.get_if<zt::Value::List>();
  const auto* empty = messages.get_if<zt::Value::Table>();
  if (!list && !(empty && empty->empty()))
    misuse("the messages of a chat are {}: give a list of tables such as {{role = \"user\", content = \"...\"}}",
           messages.type_name());
  std::vector<TemplateValue> items;
  for (size_t i = 0; list && i < list->size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i + 1);
    const auto* message = (*list)[i].get_if<zt::Value::Table>();
    if (!message) misuse("{} is {}: give a table such as {{role = \"user\", content = \"...\"}}", path, (*list)[i].type_name());
    items.push_back(with_reasoning(run, convert_message(run, *message, path)));
  }
  return run.list(std::move(items));
}

}  // namespace zt::data::jinja
