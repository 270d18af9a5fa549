// str.format: fields in braces.
#include <algorithm>
#include <cmath>

#include "template/methods/access.h"
#include "template/methods/format.h"
#include "template/value/print.h"
#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

bool is_ascii_digit(char32_t character) {
  return code_point(character) >= '0' && code_point(character) <= '9';
}

// Reads the layout of a field: [[fill]align][sign][#][0][width][grouping][.precision][type].
FieldLayout read_layout(TemplateRun& run, MarkedView spec) {
  FieldLayout layout;
  size_t at = 0;
  const auto peek = [&](size_t i) { return i < spec.size() ? code_point(spec[i]) : 0; };
  const auto is_align = [&](size_t i) {
    return peek(i) != 0 && std::u32string_view(U"<>=^").find(peek(i)) != std::u32string_view::npos;
  };
  const auto number = [&] {
    int64_t value = 0;
    for (; is_ascii_digit(peek(at)) && at < spec.size(); ++at) {
      value = value * 10 + static_cast<int64_t>(peek(at) - '0');
      run.check_length(static_cast<size_t>(value));
    }
    return value;
  };
  if (is_align(1)) layout.fill = spec[at++];
  if (is_align(at)) layout.align = static_cast<char>(peek(at++));
  if (peek(at) == '+' || peek(at) == '-' || peek(at) == ' ') layout.sign = static_cast<char>(peek(at++));
  if (peek(at) == '#') layout.is_alternate = true, ++at;
  if (peek(at) == '0') layout.has_zeros = true, ++at;
  layout.width = static_cast<size_t>(number());
  if (peek(at) == ',' || peek(at) == '_') layout.grouping = static_cast<char>(peek(at++));
  if (peek(at) == '.') {
    if (!is_ascii_digit(peek(++at))) run.fail("the layout '{}' of a field has no precision after '.'", to_utf8(spec));
    layout.precision = static_cast<int>(number());
  }
  if (at < spec.size() && peek(at) < 0x80) layout.type = static_cast<char>(peek(at++));
  if (at < spec.size())
    run.fail("the layout '{}' of a field is wrong: write fill, alignment, width, precision and type", to_utf8(spec));
  return layout;
}

MarkedText format_integer(TemplateRun& run, int64_t value, FieldLayout layout) {
  if (layout.precision) run.fail("an integer has no precision in a format: use the type 'f'");
  if (layout.type == 'c') {
    if (value < 0 || value > 0x10FFFF || layout.sign != '-') run.fail("the type 'c' needs a code point without a sign");
    if (!layout.align) layout.align = '>';
    return lay_out_text(run, MarkedText(1, static_cast<char32_t>(value)), layout);
  }
  std::string prefix;
  if (layout.is_alternate && std::string_view("boxX").find(layout.type) != std::string_view::npos && layout.type)
    prefix = {'0', layout.type};
  if (layout.grouping == ',' && !prefix.empty()) run.fail("',' groups decimal digits only: use '_'");
  return lay_out_number(run, value < 0, prefix, integer_digits(value, layout), layout);
}

// Returns format(value, spec) of Python.
MarkedText format_field(TemplateRun& run, const TemplateValue& value, MarkedView spec) {
  if (spec.empty()) return text_of(run, value);
  const FieldLayout layout = read_layout(run, spec);
  const auto fails = [&](std::string_view known) {
    if (layout.type && known.find(layout.type) == std::string_view::npos)
      run.fail("the type '{}' of a field does not suit a {}", layout.type, value.type_name());
  };
  if (const MarkedText* text = value.text()) {
    fails("s");
    if (layout.align == '=' || layout.sign != '-' || layout.is_alternate || layout.grouping)
      run.fail("the layout '{}' does not suit a string: leave out sign, '=', '#' and grouping", to_utf8(spec));
    return lay_out_text(run, *text, layout);
  }
  const bool has_integer_type = std::string_view("bcdoxXn").find(layout.type) != std::string_view::npos;
  const auto index = value.as_index();
  if (index && (layout.type == 0 || has_integer_type)) return format_integer(run, *index, layout);
  if (!index && !value.number())
    run.fail("a {} has no layout such as '{}': convert it to a string first", value.type_name(), to_utf8(spec));
  fails("eEfFgGn%");
  const double number = index ? static_cast<double>(*index) : *value.number();
  return lay_out_number(run, std::signbit(number) && !std::isnan(number), {}, float_digits(run, number, layout), layout);
}

class BraceFormatter {
 public:
  BraceFormatter(TemplateRun& run, const CallArguments& arguments) : run_(run), arguments_(arguments) {}

  MarkedText format(MarkedView text, int depth) {
    if (depth > 2) run_.fail("the fields of a format are nested too deep: give the layout as a value");
    MarkedText out;
    for (size_t at = 0; at < text.size();) {
      const char32_t c = code_point(text[at]);
      const bool is_double = at + 1 < text.size() && code_point(text[at + 1]) == c;
      if (c != '{' && c != '}') {
        out.push_back(text[at++]);
      } else if (is_double) {
        out.push_back(text[at]);
        at += 2;
      } else if (c == '}') {
        run_.fail("a format has a single '}}': write '}}}}' for a brace");
      } else {
        const size_t end = end_of_field(text, at + 1);
        out += field(text.substr(at + 1, end - at - 1), depth);
        at = end + 1;
      }
      run_.check_length(out.size());
    }
    return out;
  }

 private:
  size_t end_of_field(MarkedView text, size_t at) {
    for (int open = 1; at < text.size(); ++at) {
      const char32_t c = code_point(text[at]);
      open += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (open == 0) return at;
    }
    run_.fail("a format has a single '{{': write '{{{{' for a brace");
  }

  MarkedText field(MarkedView text, int depth) {
    // A bracket may contain '!' and ':'.
    size_t end = 0;
    for (bool in_bracket = false; end < text.size(); ++end) {
      const char32_t c = code_point(text[end]);
      if (c == '{' || c == '}') run_.fail("the name of a field has a brace: give the value by a variable");
      if (c == '[') in_bracket = true;
      else if (c == ']') in_bracket = false;
      else if (!in_bracket && (c == '!' || c == ':')) break;
    }
    TemplateValue value = look_up(text.substr(0, end));
    text.remove_prefix(end);
    if (!text.empty() && code_point(text.front()) == '!') {
      if (text.size() < 2 || (text.size() > 2 && code_point(text[2]) != ':'))
        run_.fail("a field has a wrong conversion after '!': use !s or !r");
      const char32_t conversion = code_point(text[1]);
      if (conversion != 's' && conversion != 'r') run_.fail("a field has an unknown conversion after '!': use !s or !r");
      value = run_.text(conversion == 's' ? text_of(run_, value) : repr_of(run_, value));
      text.remove_prefix(2);
    }
    const MarkedText spec = text.empty() ? MarkedText() : format(text.substr(1), depth + 1);
    return format_field(run_, value, spec);
  }

  TemplateValue look_up(MarkedView path) {
    const size_t end = std::min(path.find_first_of(U".["), path.size());
    if (end == 0 && !path.empty())
      run_.fail("the field of a format begins with '.' or '[': write the number or name of a value before it");
    TemplateValue value = argument(path.substr(0, end));
    path.remove_prefix(end);
    while (!path.empty()) {
      const bool is_attribute = code_point(path.front()) == '.';
      const size_t stop = is_attribute ? std::min(path.find_first_of(U".[", 1), path.size()) : path.find(U']');
      if (stop == MarkedView::npos || stop < 2)
        run_.fail("the field of a format has an empty attribute, or a bracket that is not closed");
      const MarkedView key = path.substr(1, stop - 1);
      if (is_attribute) value = get_attribute(run_, value, to_utf8(key), run_.text(MarkedText(key)));
      else value = get_item(run_, value, is_number(key) ? TemplateValue(index_of(key)) : run_.text(MarkedText(key)));
      path.remove_prefix(is_attribute ? stop : stop + 1);
      if (!path.empty() && code_point(path.front()) != '.' && code_point(path.front()) != '[')
        run_.fail("the field of a format has text after ']': write '.' or '['");
    }
    return value;
  }

  static bool is_number(MarkedView text) {
    return !text.empty() && text.size() < 10 && std::all_of(text.begin(), text.end(), is_ascii_digit);
  }
  static int64_t index_of(MarkedView text) { return std::stoll(to_utf8(text)); }

  const TemplateValue& argument(MarkedView name) {
    const bool is_automatic = name.empty();
    if (is_automatic || is_number(name)) {
      if (numbering_ && *numbering_ != is_automatic)
        run_.fail("a format mixes numbered fields and fields without a number: number all");
      numbering_ = is_automatic;
      const auto index = is_automatic ? next_++ : static_cast<size_t>(index_of(name));
      if (index >= arguments_.positional.size()) run_.fail("a format has more fields than values: give more values");
      return arguments_.positional[index];
    }
    const std::string key = to_utf8(name);
    for (const auto& [given, value] : arguments_.named)
      if (given == key) return value;
    run_.fail("a format has the field '{}', but no value for it: give {}=...", key, key);
  }

  TemplateRun& run_;
  const CallArguments& arguments_;
  std::optional<bool> numbering_;  // true: automatic
  size_t next_ = 0;
};

}  // namespace

TemplateValue format_braces(TemplateRun& run, const TemplateString& format, const CallArguments& arguments) {
  return run.text(BraceFormatter(run, arguments).format(format.text, 1), format.is_markup);
}

}  // namespace zt::data::jinja
