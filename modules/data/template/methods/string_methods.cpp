// Methods of strings that change case, space or parts of the text.
#include <algorithm>

#include "template/library/arguments.h"
#include "template/methods/access.h"
#include "template/methods/format.h"
#include "template/value/compare.h"
#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

TemplateValue with_text(TemplateRun& run, const TemplateValue& self, MarkedText text) {
  return run.text(std::move(text), self.string()->is_markup);
}

// Makes a method without arguments of a function from text to text.
template <MarkedText (*function)(MarkedView)>
TemplateValue convert(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  refuse_arguments(run, "a method of strings", arguments);
  return with_text(run, self, function(*self.text()));
}

template <StripSide side>
TemplateValue strip_method(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "strip", arguments, {"chars"}, 0, NamedArguments::refused);
  if (!bound.find_given(0)) return with_text(run, self, MarkedText(strip(*self.text(), side)));
  const MarkedText& characters = bound.text(0);
  run.charge_text(characters.size() * std::min<size_t>(self.text()->size(), 64));
  return with_text(run, self, MarkedText(strip(*self.text(), side, [&](char32_t character) {
                     run.charge_text(characters.size());
                     return characters.find(character) != MarkedText::npos;
                   })));
}

enum class Padding : uint8_t { left, right, both };

template <Padding padding>
TemplateValue justify(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "center, ljust or rjust", arguments, {"width", "fillchar"}, 1, NamedArguments::refused);
  const MarkedText space(1, ' ');
  const MarkedText& fill = bound.text(1, space);
  if (fill.size() != 1) run.fail("the character that fills a string must be one character, not {}", fill.size());
  const MarkedText& text = *self.text();
  const int64_t width = bound.integer(0), length = static_cast<int64_t>(text.size());
  if (width <= length) return self;
  run.check_length(static_cast<size_t>(width));
  const auto missing = static_cast<size_t>(width - length);
  const size_t odd = missing & static_cast<size_t>(width) & 1;  // Python puts an odd space to the left if the width is odd
  const size_t before = padding == Padding::left ? missing : padding == Padding::right ? 0 : missing / 2 + odd;
  return with_text(run, self, MarkedText(before, fill[0]) + text + MarkedText(missing - before, fill[0]));
}

TemplateValue zfill(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "zfill", arguments, {"width"}, 1, NamedArguments::refused);
  MarkedText text = *self.text();
  const int64_t width = bound.integer(0), length = static_cast<int64_t>(text.size());
  if (width <= length) return self;
  run.check_length(static_cast<size_t>(width));
  const bool has_sign = !text.empty() && (code_point(text[0]) == '+' || code_point(text[0]) == '-');
  return with_text(run, self, text.insert(has_sign ? 1 : 0, static_cast<size_t>(width - length), '0'));
}

TemplateValue replace_method(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "replace", arguments, {"old", "new", "count"}, 2, NamedArguments::refused);
  return with_text(run, self, replace_text(run, *self.text(), bound.text(0), bound.text(1), bound.integer(2, -1)));
}

template <bool from_start>
TemplateValue remove_affix(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "removeprefix or removesuffix", arguments, {"affix"}, 1, NamedArguments::refused);
  const MarkedText& text = *self.text();
  const MarkedText& affix = bound.text(0);
  const bool matches = from_start ? text.starts_with(affix) : text.ends_with(affix);
  if (!matches) return self;
  return with_text(run, self, from_start ? text.substr(affix.size()) : text.substr(0, text.size() - affix.size()));
}

TemplateValue join_method(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "join", arguments, {"iterable"}, 1, NamedArguments::refused);
  MarkedText out;
  bool is_first = true;
  for (const TemplateValue& item : items_of(run, bound[0])) {
    if (!item.text()) run.fail("'join' of a string needs strings, not a {}: use the filter `join`", item.type_name());
    if (!is_first) out += *self.text();
    is_first = false;
    out += *item.text();
    run.check_length(out.size());
    run.charge(1);
  }
  return with_text(run, self, std::move(out));
}

TemplateValue expandtabs(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "expandtabs", arguments, {"tabsize"});
  const int64_t size = bound.integer(0, 8);
  run.check_length(static_cast<size_t>(std::max<int64_t>(size, 0)));
  MarkedText out;
  int64_t column = 0;
  for (const char32_t character : *self.text()) {
    const char32_t c = code_point(character);
    if (c == '\t' && size > 0) {
      const int64_t spaces = size - column % size;
      out.append(static_cast<size_t>(spaces), ' ' | marks_of(character));
      column += spaces;
    } else if (c != '\t') {
      out.push_back(character);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    run.check_length(out.size());
  }
  return with_text(run, self, std::move(out));
}

TemplateValue format_method(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  return format_braces(run, *self.string(), arguments);
}

}  // namespace

MarkedText replace_text(TemplateRun& run, MarkedView text, MarkedView old, MarkedView with, int64_t count) {
  const size_t limit = count < 0 ? MarkedView::npos : static_cast<size_t>(count);
  run.charge_text(text.size() + old.size());
  std::vector<size_t> places;
  if (!old.empty()) places = occurrences(text, old, limit);
  else
    for (size_t i = 0; i <= text.size() && i < limit; ++i) places.push_back(i);
  size_t length = 0;
  if (__builtin_mul_overflow(places.size(), with.size(), &length)) length = kMaxLength + 1;
  run.check_length(length);
  MarkedText out;
  size_t begin = 0;
  for (const size_t place : places) {
    out.append(text.substr(begin, place - begin)).append(with);
    begin = place + old.size();
  }
  return out.append(text.substr(begin));
}

MethodFunction find_string_method(std::string_view name) {
  static const std::map<std::string_view, MethodFunction> methods = {
      {"capitalize", convert<capitalize>},
      {"center", justify<Padding::both>},
      {"expandtabs", expandtabs},
      {"format", format_method},
      {"join", join_method},
      {"ljust", justify<Padding::right>},
      {"lower", convert<lower>},
      {"lstrip", strip_method<StripSide::left>},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"replace", replace_method},
      {"rjust", justify<Padding::left>},
      {"rstrip", strip_method<StripSide::right>},
      {"strip", strip_method<StripSide::both>},
      {"swapcase", convert<swap_case>},
      {"title", convert<title>},
      {"upper", convert<upper>},
      {"zfill", zfill},
  };
  const auto found = methods.find(name);
  return found == methods.end() ? nullptr : found->second;
}

}  // namespace zt::data::jinja
