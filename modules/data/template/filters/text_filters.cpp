// Filters that change a text: case, replacement, formatting, conversion to JSON.
#include "template/library/arguments.h"
#include "template/library/names.h"
#include "template/methods/access.h"
#include "template/methods/format.h"
#include "template/value/compare.h"
#include "template/value/print.h"
#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

// Returns the value if it is a string, or else its text: soft_str of jinja2.
TemplateString soft_string(TemplateRun& run, const TemplateValue& value) {
  return value.string() ? *value.string() : TemplateString{text_of(run, value)};
}

template <MarkedText (*function)(MarkedView)>
TemplateValue convert_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "a filter of strings", arguments);
  const TemplateString string = soft_string(run, value);
  return run.text(function(string.text), string.is_markup);
}

// Words begin after white space, a hyphen or an opening bracket. str.title has other words.
MarkedText title_words(MarkedView text) {
  MarkedText out;
  size_t i = 0;
  const auto separates = [](char32_t character) {
    return is_space(character) || std::u32string_view(U"-({[<").find(code_point(character)) != std::u32string_view::npos;
  };
  while (i < text.size()) {
    const bool is_separator = separates(text[i]);
    size_t end = i;
    while (end < text.size() && separates(text[end]) == is_separator) ++end;
    out += upper(text.substr(i, 1));
    out += lower(text.substr(i + 1, end - i - 1));
    i = end;
  }
  return out;
}

TemplateValue string_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "string", arguments);
  if (value.string()) return value;
  return run.text(text_of(run, value));
}

TemplateValue trim_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "trim", arguments, {"chars"});
  const TemplateString string = soft_string(run, value);
  if (!bound.find_given(0)) return run.text(MarkedText(strip(string.text)), string.is_markup);
  const MarkedText& characters = bound.text(0);
  return run.text(MarkedText(strip(string.text, StripSide::both,
                                   [&](char32_t character) {
                                     run.charge_text(characters.size());
                                     return characters.find(character) != MarkedText::npos;
                                   })),
                  string.is_markup);
}

TemplateValue replace_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "replace", arguments, {"old", "new", "count"}, 2);
  const int64_t count = bound.find_given(2) ? bound.integer(2) : -1;
  return run.text(replace_text(run, text_of(run, value), text_of(run, bound[0]), text_of(run, bound[1]), count));
}

TemplateValue format_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    run.fail("'format' takes either positional or named arguments, not both");
  const TemplateString string = soft_string(run, value);
  if (arguments.named.empty()) return format_percent(run, string, run.tuple(arguments.positional));
  TemplateDict values;
  for (const auto& [name, argument] : arguments.named)
    values.set(run, run.text(from_utf8(name, 0).value_or(MarkedText())), argument);
  return format_percent(run, string, run.dict(std::move(values)));
}

TemplateValue wordcount_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "wordcount", arguments);
  int64_t words = 0;
  bool follows_word = false;
  for (const char32_t character : soft_string(run, value).text) {
    const bool is_in_word = is_word(character);
    words += is_in_word && !follows_word ? 1 : 0;
    follows_word = is_in_word;
  }
  return words;
}

TemplateValue join_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "join", arguments, {"d", "attribute"});
  const MarkedText separator = bound.find(0) ? text_of(run, *bound.find(0)) : MarkedText();
  std::optional<AttributePath> path;
  if (bound.find_given(1)) path.emplace(run, *bound.find(1));
  MarkedText out;
  bool is_first = true;
  for (const TemplateValue& item : items_of(run, value)) {
    if (!is_first) out += separator;
    is_first = false;
    out += text_of(run, path ? path->get(run, item) : item);
    run.check_length(out.size());
    run.charge(1);
  }
  return run.text(std::move(out));
}

// Reads the argument `indent` or `separators` of json.dumps.
void read_json_layout(TemplateRun& run, const BoundArguments& bound, JsonStyle& style) {
  if (const TemplateValue* indent = bound.find_given(1)) {
    if (indent->text()) {
      style.indent = *indent->text();
    } else {
      const int64_t width = std::max<int64_t>(bound.integer(1), 0);
      run.check_length(static_cast<size_t>(width));
      style.indent = MarkedText(static_cast<size_t>(width), ' ');
    }
  }
  style.item_separator = from_ascii(style.indent ? "," : ", ");
  style.key_separator = from_ascii(": ");
  if (const TemplateValue* separators = bound.find_given(2)) {
    const auto items = items_of(run, *separators);
    if (items.size() != 2 || !items[0].text() || !items[1].text())
      run.fail("the separators of 'tojson' must be two strings, such as (', ', ': ')");
    style.item_separator = *items[0].text();
    style.key_separator = *items[1].text();
  }
}

TemplateValue tojson_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.is_ascii = bound.truth(0, false);
  style.is_sorted = bound.truth(3, false);
  read_json_layout(run, bound, style);
  return run.text(json_text(run, value, style));
}

}  // namespace

void add_text_filters(FilterTable& table) {
  table.insert({{"capitalize", convert_filter<capitalize>},
                {"format", format_filter},
                {"join", join_filter},
                {"lower", convert_filter<lower>},
                {"replace", replace_filter},
                {"string", string_filter},
                {"title", convert_filter<title_words>},
                {"tojson", tojson_filter},
                {"trim", trim_filter},
                {"upper", convert_filter<upper>},
                {"wordcount", wordcount_filter}});
}

}  // namespace zt::data::jinja
