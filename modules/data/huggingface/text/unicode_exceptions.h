// Characters for which tokenizers 0.23 and utf8proc differ, because they know other versions of Unicode. Found by asking
// tokenizers for every character that Unicode 14 assigns.
#pragma once

namespace zt::data::huggingface {

enum class Exceptions : unsigned char {
  punctuation,      // only one of the two takes the character for punctuation
  nonspacing_mark,  // the same for general category Mn
  combining_mark,   // the same for general category M
  control,          // the same for general categories Cc, Cf and Co
  normal_form,      // tokenizers has neither a decomposition nor a combining class for the character
};

// Returns whether the character is in the list.
bool is_exception(Exceptions list, char32_t character);

}  // namespace zt::data::huggingface
