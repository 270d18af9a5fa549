// Methods of strings that look for something, and those that say what a string consists of.
#include <algorithm>

#include "template/library/arguments.h"
#include "template/methods/access.h"
#include "template/value/compare.h"
#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

// The part of a string in which a method looks: its bounds are arguments.
struct SearchWindow {
  MarkedView text;
  size_t begin;
  bool is_valid;  // false: the begin is after the end of the string, where even an empty string is not found
};

SearchWindow window_of(TemplateRun& run, const TemplateValue& self, const BoundArguments& bound) {
  const MarkedView text = *self.text();
  const auto length = static_cast<int64_t>(text.size());
  const auto place = [&](size_t index, int64_t fallback) {
    const int64_t value = bound.find_given(index) ? bound.integer(index) : fallback;
    return value < 0 ? std::max<int64_t>(value + length, 0) : value;
  };
  const int64_t begin = place(1, 0), end = std::min(place(2, length), length);
  run.charge_text(text.size());
  if (begin > end) return {{}, 0, false};
  return {text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), static_cast<size_t>(begin), true};
}

BoundArguments bind_search(TemplateRun& run, std::string_view function, const CallArguments& arguments) {
  return BoundArguments(run, function, arguments, {"sub", "start", "end"}, 1, NamedArguments::refused);
}

enum class Missing : uint8_t { minus_one, fault };

template <bool from_end, Missing missing>
TemplateValue find_method_of_string(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const auto bound = bind_search(run, "find or index", arguments);
  const MarkedText& part = bound.text(0);
  const auto window = window_of(run, self, bound);
  const size_t found = !window.is_valid ? MarkedView::npos
                       : from_end       ? find_last_text(window.text, part)
                                        : find_text(window.text, part);
  if (found != MarkedView::npos) return static_cast<int64_t>(found + window.begin);
  if (missing == Missing::fault) run.fail("the string does not contain '{}': use `find`, which returns -1 then", to_utf8(part));
  return int64_t{-1};
}

TemplateValue count_method(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const auto bound = bind_search(run, "count", arguments);
  const MarkedText& part = bound.text(0);
  const auto window = window_of(run, self, bound);
  if (!window.is_valid) return int64_t{0};
  if (part.empty()) return static_cast<int64_t>(window.text.size()) + 1;
  return static_cast<int64_t>(occurrences(window.text, part, MarkedView::npos).size());
}

template <bool at_start>
TemplateValue affix_method(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const auto bound = bind_search(run, "startswith or endswith", arguments);
  const auto window = window_of(run, self, bound);
  std::vector<TemplateValue> affixes = {bound[0]};
  if (const TemplateList* list = bound[0].list(); list && list->is_tuple) affixes = list->items;
  for (const TemplateValue& affix : affixes) {
    if (!affix.text()) run.fail("'startswith' and 'endswith' take a string or a tuple of strings, not a {}", affix.type_name());
    run.charge_text(affix.text()->size());
    const MarkedView text = *affix.text();
    if (window.is_valid && (at_start ? window.text.starts_with(text) : window.text.ends_with(text))) return true;
  }
  return false;
}

// Makes a method that is true if all characters, and at least one, have a property.
template <bool (*property)(char32_t)>
TemplateValue all_are(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  refuse_arguments(run, "a method of strings", arguments);
  const MarkedText& text = *self.text();
  return !text.empty() && std::all_of(text.begin(), text.end(), property);
}

bool is_alphanumeric(char32_t character) {
  return is_letter(character) || is_digit(character);
}

TemplateValue isascii(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  refuse_arguments(run, "isascii", arguments);
  return std::all_of(self.text()->begin(), self.text()->end(), [](char32_t character) { return code_point(character) < 0x80; });
}

TemplateValue islower_method(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  refuse_arguments(run, "islower", arguments);
  return is_lower_text(*self.text());
}

TemplateValue isupper_method(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  refuse_arguments(run, "isupper", arguments);
  return is_upper_text(*self.text());
}

TemplateValue istitle_method(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  refuse_arguments(run, "istitle", arguments);
  bool follows_letter = false, has_letter = false;
  for (const char32_t character : *self.text()) {
    const bool is_capital = is_upper(character) || is_title(character), is_small = is_lower(character);
    if ((is_capital && follows_letter) || (is_small && !follows_letter)) return false;
    follows_letter = is_capital || is_small;
    has_letter = has_letter || follows_letter;
  }
  return has_letter;
}

}  // namespace

MethodFunction find_string_test_method(std::string_view name) {
  static const std::map<std::string_view, MethodFunction> methods = {
      {"count", count_method},
      {"endswith", affix_method<false>},
      {"find", find_method_of_string<false, Missing::minus_one>},
      {"index", find_method_of_string<false, Missing::fault>},
      {"isalnum", all_are<is_alphanumeric>},
      {"isalpha", all_are<is_letter>},
      {"isascii", isascii},
      {"isdecimal", all_are<is_decimal>},
      {"isdigit", all_are<is_digit>},
      {"islower", islower_method},
      {"isspace", all_are<is_space>},
      {"istitle", istitle_method},
      {"isupper", isupper_method},
      {"rfind", find_method_of_string<true, Missing::minus_one>},
      {"rindex", find_method_of_string<true, Missing::fault>},
      {"startswith", affix_method<true>},
  };
  const auto found = methods.find(name);
  return found == methods.end() ? nullptr : found->second;
}

}  // namespace zt::data::jinja
