// Translates regular expressions of Oniguruma, which tokenizer.json uses, to those of PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace zt::data::huggingface {

// Returns a pattern of PCRE2, for the options UTF and UCP, that matches what `pattern` matches in Oniguruma's own syntax. Groups
// do not capture. One difference remains: (?i:ss) does not match a sharp s, nor any other pair of letters one character. Throws
// Fault, which names the construct, for what is not translated: backreferences, conditions, absent operators, extended mode,
// intersections of sets, negated sets within sets, properties of blocks, and the rarer escapes.
std::string translate_oniguruma(std::string_view pattern);

// Holds the characters of \w in Oniguruma, as the content of a set of PCRE2. Outside of sets, Oniguruma adds a few characters of
// Latin-1.
inline constexpr std::string_view kOnigurumaWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

}  // namespace zt::data::huggingface
