// UTF-8 and properties of characters, as Hugging Face's tokenizers has them.
//
// utf8proc knows Unicode 15, and PCRE2 Unicode 14. The libraries below tokenizers 0.23 know Unicode 8 to 17, each another
// version: unicode_exceptions.h lists the characters where that matters. For a character that Unicode 14 does not assign,
// properties may differ from those in tokenizers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zt::data::huggingface {

// Returns the offset of the first byte that is not part of valid UTF-8, or npos if there is none.
size_t find_bad_utf8(std::string_view text);

// Returns the number of bytes of the character that starts with the byte `first` in valid UTF-8.
inline size_t bytes_of_character(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Returns the offset of the character before the offset `end` > 0 in valid UTF-8.
inline size_t previous_character(std::string_view text, size_t end) {
  do --end;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

// Returns the character at the offset `at` of valid UTF-8.
char32_t character_at(std::string_view text, size_t at);

// Appends a character as UTF-8.
void append_character(std::string& text, char32_t character);

// Returns the text with U+FFFD for each longest part that starts like a character but is none.
std::string replace_bad_utf8(std::string_view text);

// Returns the number of characters of valid UTF-8.
size_t count_characters(std::string_view text);

bool is_white_space(char32_t character);      // the property White_Space
bool is_numeric(char32_t character);          // general categories Nd, Nl, No
bool is_punctuation(char32_t character);      // general category P, and the punctuation and symbols of ASCII
bool is_nonspacing_mark(char32_t character);  // general category Mn
bool is_combining_mark(char32_t character);   // general category M
bool is_control(char32_t character);          // general categories Cc, Cf and Co

// Appends the lower case of a character, which has two characters for U+0130.
void append_lower_case(std::string& text, char32_t character);

}  // namespace zt::data::huggingface
