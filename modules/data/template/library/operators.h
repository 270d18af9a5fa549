// Arithmetic of values, as in Python. Integers have 64 bits: a result that does not fit is a Fault.
#pragma once

#include "template/syntax/syntax.h"
#include "template/value/run.h"

namespace zt::data::jinja {

TemplateValue apply(TemplateRun& run, BinaryOperator operation, const TemplateValue& left, const TemplateValue& right);
// The operator is `negative` or `positive`.
TemplateValue apply(TemplateRun& run, UnaryOperator operation, const TemplateValue& operand);

// Returns the text with &, <, >, ' and " as entities of HTML.
MarkedText escape_html(MarkedView text);

}  // namespace zt::data::jinja
