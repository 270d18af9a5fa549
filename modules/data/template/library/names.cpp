#include "template/library/names.h"

namespace zt::data::jinja {

namespace {

// Filters of jinja2 that are left out, and the reason.
const std::map<std::string_view, std::string_view>& unsupported_filters() {
  static const std::map<std::string_view, std::string_view> filters = {
      {"pprint", "its layout is for debugging only: use `tojson(indent=2)`"},
      {"random", "a chat template must give the same text each time: remove it"},
      {"urlize", "it makes HTML: write the text itself"},
  };
  return filters;
}

// Counts the work of a filter or test on a value, which may be a long string.
void charge_operand(TemplateRun& run, const TemplateValue& value) {
  run.charge(1 + (value.text() ? value.text()->size() / kCharactersPerStep : 0));
}

// Returns the end of a message about an unknown name. The distance to a very long name would take long.
template <class Table>
std::string suggest_known(const std::string& name, const Table& table) {
  constexpr size_t kLongest = 64;
  std::vector<std::string> names;
  for (const auto& [known, function] : table) names.emplace_back(known);
  return name.size() <= kLongest ? suggest(name, names) : std::string(": check its spelling");
}

}  // namespace

const FilterTable& all_filters() {
  static const FilterTable table = [] {
    FilterTable filters;
    add_text_filters(filters);
    add_layout_filters(filters);
    add_markup_filters(filters);
    add_number_filters(filters);
    add_list_filters(filters);
    add_order_filters(filters);
    add_select_filters(filters);
    return filters;
  }();
  return table;
}

std::string unknown_filter_message(const std::string& name) {
  const auto found = unsupported_filters().find(name);
  if (found != unsupported_filters().end()) return message("the filter '{}' is not supported, because {}", name, found->second);
  return message("unknown filter '{}'{}", name, suggest_known(name, all_filters()));
}

std::string unknown_test_message(const std::string& name) {
  return message("unknown test '{}'{}", name, suggest_known(name, all_tests()));
}

TemplateValue call_filter(TemplateRun& run, const std::string& name, const TemplateValue& value, const CallArguments& arguments) {
  const auto found = all_filters().find(name);
  if (found == all_filters().end()) run.fail("{}", unknown_filter_message(name));
  charge_operand(run, value);
  return found->second(run, value, arguments);
}

bool call_test(TemplateRun& run, const std::string& name, const TemplateValue& value, const CallArguments& arguments) {
  const auto found = all_tests().find(name);
  if (found == all_tests().end()) run.fail("{}", unknown_test_message(name));
  charge_operand(run, value);
  return found->second(run, value, arguments);
}

}  // namespace zt::data::jinja
