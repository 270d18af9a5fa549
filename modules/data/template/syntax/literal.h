// Numbers and strings in the expressions of templates.
#pragma once

#include "template/syntax/lexer.h"

namespace zt::data::jinja {

// Returns the length of the float that begins at `at`, such as "1.5", "1_0e3", or 0 if there is none.
size_t float_length(MarkedView source, size_t at);
// Returns the length of the integer that begins at `at`, such as "12", "1_000", "0x1f", or 0 if there is none.
size_t integer_length(MarkedView source, size_t at);
// Returns nullopt if the integer does not fit into 64 bits.
std::optional<int64_t> integer_value(MarkedView digits);
double float_value(MarkedView digits);

// Returns the characters of a string without its quotes: escapes are those of Python. Returns nullopt for an escape that is not
// complete, or names a character (\N{...}).
std::optional<MarkedText> unescape(MarkedView text);

}  // namespace zt::data::jinja
