#include "huggingface/text/unicode_word.h"

#include "huggingface/text/unicode.h"
#include "huggingface/text/unicode_regex.h"

namespace zt::data::huggingface {

bool starts_with_word_character(std::string_view text) {
  static const UnicodeRegex regex("[" + std::string(kWordSet) + "]", "\\w");
  return !text.empty() && regex.matches_at_start(text);
}

bool ends_with_word_character(std::string_view text) {
  return !text.empty() && starts_with_word_character(text.substr(previous_character(text, text.size())));
}

}  // namespace zt::data::huggingface
