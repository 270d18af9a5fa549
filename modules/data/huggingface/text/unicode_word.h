// Tells word characters, as the regular expressions of Rust do (UTS 18).
#pragma once

#include <string_view>

namespace zt::data::huggingface {

// The content of a set of PCRE2: letters, marks, decimal digits, connectors such as '_', and the two characters that join others.
inline constexpr std::string_view kWordSet = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}";

// Return whether the text, which is valid UTF-8, starts or ends with a word character.
bool starts_with_word_character(std::string_view text);
bool ends_with_word_character(std::string_view text);

}  // namespace zt::data::huggingface
