// Filters that lay out a text: indent, center, truncate, wordwrap.
#include <algorithm>

#include "template/filters/word_wrap.h"
#include "template/library/arguments.h"
#include "template/library/names.h"
#include "template/value/compare.h"
#include "template/value/print.h"
#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

const MarkedText& string_operand(TemplateRun& run, std::string_view filter, const TemplateValue& value) {
  run.refuse_undefined(value);
  if (!value.text())
    run.fail("the filter '{}' needs a string, not a {}: convert it by the filter `string`", filter, value.type_name());
  return *value.text();
}

TemplateValue center_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "center", arguments, {"width"});
  const MarkedText text = text_of(run, value);
  const int64_t width = bound.integer(0, 80), length = static_cast<int64_t>(text.size());
  if (width <= length) return run.text(text);
  run.check_length(static_cast<size_t>(width));
  const auto missing = static_cast<size_t>(width - length);
  const size_t before = missing / 2 + (missing & static_cast<size_t>(width) & 1);
  return run.text(MarkedText(before, ' ') + text + MarkedText(missing - before, ' '));
}

TemplateValue indent_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "indent", arguments, {"width", "first", "blank"});
  const MarkedText text = string_operand(run, "indent", value) + MarkedText(1, '\n');
  MarkedText indent;
  if (bound.find(0) && bound.find(0)->text()) {
    indent = *bound.find(0)->text();
  } else {
    const int64_t width = std::max<int64_t>(bound.integer(0, 4), 0);
    run.check_length(static_cast<size_t>(width));
    indent.assign(static_cast<size_t>(width), ' ');
  }
  const bool with_blank = bound.truth(2, false);
  MarkedText out;
  const auto lines = lines_of(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.push_back('\n');
    const bool is_indented = i == 0 ? bound.truth(1, false) : with_blank || !lines[i].empty();
    if (is_indented) out += indent;
    out += lines[i];
    run.check_length(out.size());
  }
  return run.text(std::move(out), value.string()->is_markup);
}

TemplateValue truncate_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  const MarkedText dots = from_ascii("...");
  const MarkedText& end = bound.text(2, dots);
  const int64_t length = bound.integer(0, 255), leeway = bound.find_given(3) ? bound.integer(3) : 5;
  if (length < static_cast<int64_t>(end.size()) || leeway < 0)
    run.fail("'truncate' needs a length of at least the {} characters of its end, and a leeway of at least 0", end.size());
  const auto size = length_of(run, value);
  if (size && *size - leeway <= length) return value;
  const MarkedText& text = string_operand(run, "truncate", value);
  MarkedView kept = MarkedView(text).substr(0, static_cast<size_t>(length) - end.size());
  if (!bound.truth(1, false)) kept = kept.substr(0, kept.rfind(U' '));
  return run.text(MarkedText(kept) + end);
}

TemplateValue wordwrap_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "wordwrap", arguments, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const MarkedText newline(1, '\n');
  const MarkedText& separator = bound.find_given(2) ? bound.text(2) : newline;
  const int64_t width = bound.integer(0, 79);
  if (width <= 0) run.fail("the width of 'wordwrap' is {}, but must be positive", width);
  const WrapRules rules{static_cast<size_t>(width), bound.truth(1, true), bound.truth(3, true)};
  MarkedText out;
  bool is_first_line = true;
  for (const MarkedView line : lines_of(string_operand(run, "wordwrap", value))) {
    if (!is_first_line) out += separator;
    is_first_line = false;
    bool is_first_part = true;
    for (const MarkedText& part : wrap_line(line, rules)) {
      if (!is_first_part) out += separator;
      is_first_part = false;
      out += part;
      run.check_length(out.size());
    }
  }
  return run.text(std::move(out));
}

}  // namespace

void add_layout_filters(FilterTable& table) {
  table.insert(
      {{"center", center_filter}, {"indent", indent_filter}, {"truncate", truncate_filter}, {"wordwrap", wordwrap_filter}});
}

}  // namespace zt::data::jinja
