// Properties and case of Unicode characters, as Python's str has them. The marks of characters do not matter here.
#pragma once

#include "template/value/text.h"

namespace zt::data::jinja {

bool is_space(char32_t character);
bool is_line_end(char32_t character);   // where str.splitlines splits
bool is_letter(char32_t character);     // str.isalpha
bool is_decimal(char32_t character);    // str.isdecimal
bool is_digit(char32_t character);      // str.isdigit: also superscripts and the like
bool is_word(char32_t character);       // \w of regular expressions
bool is_lower(char32_t character);      // has the property Lowercase
bool is_upper(char32_t character);      // has the property Uppercase
bool is_title(char32_t character);      // is a letter in title case, such as U+01C5
bool is_printable(char32_t character);  // repr writes the character itself, without an escape

// str.islower and str.isupper: the text has cased characters, and all of them are of this case.
bool is_lower_text(MarkedView text);
bool is_upper_text(MarkedView text);

// Each result may be longer than the text: the upper case of U+00DF is "SS". Every new character has the marks of the one that it
// is made from.
MarkedText upper(MarkedView text);
MarkedText lower(MarkedView text);       // a capital sigma at the end of a word becomes a final sigma
MarkedText capitalize(MarkedView text);  // the first character in title case, the others in lower case
MarkedText title(MarkedView text);       // the same for each run of letters
MarkedText swap_case(MarkedView text);

}  // namespace zt::data::jinja
