// Texts of values, as Python's str, repr and json.dumps write them.
#pragma once

#include "template/value/run.h"

namespace zt::data::jinja {

// Returns the shortest text that reads as the same number: "0.1", "1e+16", "inf".
std::string float_text(double value);
// Returns the text that `{{ value }}` prints: str of Python.
MarkedText text_of(TemplateRun& run, const TemplateValue& value);
// Appends the text of the value within a list: repr of Python.
void append_repr(TemplateRun& run, const TemplateValue& value, MarkedText& out);
MarkedText repr_of(TemplateRun& run, const TemplateValue& value);

struct JsonStyle {
  bool is_ascii = false;
  bool is_sorted = false;            // by key
  std::optional<MarkedText> indent;  // nullopt: everything in one line
  MarkedText item_separator, key_separator;
};
// Throws Fault for a value that JSON cannot hold. If a character of the value comes from the input, the whole result counts as if
// it did.
MarkedText json_text(TemplateRun& run, const TemplateValue& value, const JsonStyle& style);

}  // namespace zt::data::jinja
