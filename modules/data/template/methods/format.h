// Formats values into strings: the operator %, str.format and their fields.
#pragma once

#include "template/library/arguments.h"
#include "template/value/run.h"

namespace zt::data::jinja {

// Returns `format % value` of Python.
TemplateValue format_percent(TemplateRun& run, const TemplateString& format, const TemplateValue& value);
// Returns `format.format(...)` of Python.
TemplateValue format_braces(TemplateRun& run, const TemplateString& format, const CallArguments& arguments);

// How a number or string is written in a field: both syntaxes are read into it.
struct FieldLayout {
  char32_t fill = ' ';
  char align = 0;   // '<', '>', '^', '='; 0: the default of the type
  char sign = '-';  // '-', '+' or ' '
  bool is_alternate = false;
  bool has_zeros = false;  // the field is filled by zeros after the sign
  char grouping = 0;       // ',' or '_'
  size_t width = 0;
  std::optional<int> precision;
  char type = 0;
};

// Returns the digits of a number, without its sign, by `precision`, `type`, `grouping` and `is_alternate`. `type` must be one of
// bdoxXn for an integer, and one of eEfFgGn% or 0 for a float.
std::string integer_digits(int64_t value, const FieldLayout& layout);
std::string float_digits(TemplateRun& run, double value, const FieldLayout& layout);
// Puts the sign and the digits, the prefix of which (0x) may be empty, into the width of the field.
MarkedText lay_out_number(TemplateRun& run, bool is_negative, std::string prefix, std::string digits, const FieldLayout& layout);
MarkedText lay_out_text(TemplateRun& run, MarkedView text, const FieldLayout& layout);

}  // namespace zt::data::jinja
