#include "template/value/print.h"

#include <charconv>
#include <cmath>

#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

void append_escaped_character(char32_t character, MarkedText& out) {
  const char32_t c = code_point(character);
  std::string escape;
  if (c == '\n') escape = "\\n";
  else if (c == '\r') escape = "\\r";
  else if (c == '\t') escape = "\\t";
  else if (c < 0x100) escape = fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
  else if (c < 0x10000) escape = fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  else escape = fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
  append_ascii(escape, marks_of(character), out);
}

void append_string_repr(const TemplateString& string, MarkedText& out) {
  const MarkedText& text = string.text;
  const bool has_single = text.find(U'\'') != MarkedText::npos, has_double = text.find(U'"') != MarkedText::npos;
  const char32_t quote = has_single && !has_double ? '"' : '\'';
  if (string.is_markup) append_ascii("Markup(", 0, out);
  out.push_back(quote);
  for (const char32_t character : text) {
    const char32_t c = code_point(character);
    if (c == quote || c == '\\') out.push_back('\\' | marks_of(character));
    if (is_printable(c)) out.push_back(character);
    else append_escaped_character(character, out);
  }
  out.push_back(quote);
  if (string.is_markup) out.push_back(')');
}

void append_list_repr(TemplateRun& run, const TemplateList& list, MarkedText& out) {
  out.push_back(list.is_tuple ? '(' : '[');
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) append_ascii(", ", 0, out);
    append_repr(run, list.items[i], out);
  }
  if (list.is_tuple && list.items.size() == 1) out.push_back(',');
  out.push_back(list.is_tuple ? ')' : ']');
}

void append_dict_repr(TemplateRun& run, const TemplateDict& dict, MarkedText& out) {
  out.push_back('{');
  bool is_first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!is_first) append_ascii(", ", 0, out);
    is_first = false;
    append_repr(run, key, out);
    append_ascii(": ", 0, out);
    append_repr(run, value, out);
  }
  out.push_back('}');
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  const size_t at = text.find('e');
  const int exponent = std::stoi(text.substr(at + 1));
  if (exponent < -4 || exponent >= 16) {
    const std::string sign = exponent < 0 ? "-" : "+";
    return text.substr(0, at) + "e" + sign + fmt::format("{:02}", std::abs(exponent));
  }
  const bool is_negative = text.front() == '-';
  std::string digits = text.substr(is_negative ? 1 : 0, at - (is_negative ? 1 : 0));
  if (digits.size() > 1) digits.erase(1, 1);  // the point
  if (exponent < 0) digits.insert(0, static_cast<size_t>(-exponent), '0');
  const size_t before = exponent < 0 ? 1 : static_cast<size_t>(exponent) + 1;
  if (digits.size() < before + 1) digits.append(before + 1 - digits.size(), '0');
  digits.insert(before, ".");
  return (is_negative ? "-" : "") + digits;
}

void append_repr(TemplateRun& run, const TemplateValue& value, MarkedText& out) {
  run.charge(1);
  run.check_length(out.size());
  const auto level = run.enter_call();
  if (const TemplateString* string = value.string()) {
    run.charge_text(string->text.size());
    append_string_repr(*string, out);
  } else if (const TemplateList* list = value.list()) {
    append_list_repr(run, *list, out);
  } else if (const TemplateDict* dict = value.dict()) {
    append_dict_repr(run, *dict, out);
  } else if (value.is_undefined()) {
    append_ascii("Undefined", 0, out);
  } else if (value.is_none()) {
    append_ascii("None", 0, out);
  } else if (const bool* boolean = value.boolean()) {
    append_ascii(*boolean ? "True" : "False", 0, out);
  } else if (const int64_t* integer = value.integer()) {
    append_ascii(std::to_string(*integer), 0, out);
  } else if (const double* number = value.number()) {
    append_ascii(float_text(*number), 0, out);
  } else {
    value.object()->print(run, out);
  }
}

MarkedText text_of(TemplateRun& run, const TemplateValue& value) {
  if (value.is_undefined()) return {};
  if (const MarkedText* text = value.text()) return *text;
  return repr_of(run, value);
}

MarkedText repr_of(TemplateRun& run, const TemplateValue& value) {
  MarkedText out;
  append_repr(run, value, out);
  run.check_length(out.size());
  return out;
}

}  // namespace zt::data::jinja
