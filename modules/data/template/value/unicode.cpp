#include "template/value/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "template/value/special_case.h"

namespace zt::data::jinja {

namespace {

struct CodePointRange {
  char32_t first, last;
};

// Characters outside of the category Ll or Lu that have the property Lowercase or Uppercase.
constexpr CodePointRange kOtherLower[] = {
    {0xAA, 0xAA},     {0xBA, 0xBA},     {0x2B0, 0x2B8},     {0x2C0, 0x2C1},     {0x2E0, 0x2E4},     {0x345, 0x345},
    {0x37A, 0x37A},   {0x1D2C, 0x1D6A}, {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
    {0x2090, 0x209C}, {0x2170, 0x217F}, {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},
    {0xA7F8, 0xA7F9}, {0xAB5C, 0xAB5F}, {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
constexpr CodePointRange kOtherUpper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
// Digits outside of the category Nd.
constexpr CodePointRange kOtherDigits[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                                           {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                           {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                                           {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                                           {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

bool lies_in(std::span<const CodePointRange> ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const CodePointRange& range) { return range.first <= c && c <= range.last; });
}

int category_of(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point(character)));
}

const SpecialCase* find_special(std::span<const SpecialCase> table, char32_t c) {
  const auto found = std::lower_bound(table.begin(), table.end(), c,
                                      [](const SpecialCase& entry, char32_t wanted) { return entry.character < wanted; });
  return found != table.end() && found->character == c ? &*found : nullptr;
}

void append_special(const SpecialCase& special, char32_t marks, MarkedText& out) {
  for (const char32_t c : special.mapped)
    if (c != 0) out.push_back(c | marks);
}

void append_upper(char32_t character, MarkedText& out) {
  const char32_t c = code_point(character);
  if (const SpecialCase* special = find_special(kSpecialUpper, c)) return append_special(*special, marks_of(character), out);
  out.push_back(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))) | marks_of(character));
}

void append_title(char32_t character, MarkedText& out) {
  const char32_t c = code_point(character);
  const SpecialCase* special = find_special(kSpecialTitle, c);
  if (!special && !(c >= 0x1F80 && c < 0x2000)) special = find_special(kSpecialUpper, c);
  if (!special && c >= 0x1F80 && c < 0x2000 && utf8proc_totitle(static_cast<utf8proc_int32_t>(c)) == static_cast<int32_t>(c))
    if (category_of(c) == UTF8PROC_CATEGORY_LL) special = find_special(kSpecialUpper, c);
  if (special) return append_special(*special, marks_of(character), out);
  out.push_back(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))) | marks_of(character));
}

// Marks, formats and modifiers do not separate letters: the properties Case_Ignorable and Cased of Unicode, nearly.
bool is_case_ignorable(char32_t character) {
  const char32_t c = code_point(character);
  if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xA8 || c == 0xB7 || c == 0x2019) return true;
  const int category = category_of(c);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_SK;
}

bool is_cased(char32_t character) {
  return is_lower(character) || is_upper(character) || is_title(character);
}

bool is_final_sigma(MarkedView text, size_t at) {
  size_t before = at;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

void append_lower(MarkedView text, size_t at, MarkedText& out) {
  const char32_t c = code_point(text[at]), marks = marks_of(text[at]);
  if (c == 0x130) {
    out.push_back('i' | marks), out.push_back(0x307 | marks);
  } else if (c == 0x3A3) {
    out.push_back((is_final_sigma(text, at) ? 0x3C2 : 0x3C3) | marks);
  } else {
    out.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))) | marks);
  }
}

}  // namespace

bool is_space(char32_t character) {
  const char32_t c = code_point(character);
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_line_end(char32_t character) {
  const char32_t c = code_point(character);
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_letter(char32_t character) {
  const int category = category_of(character);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t character) {
  return category_of(character) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t character) {
  return is_decimal(character) || lies_in(kOtherDigits, code_point(character));
}

bool is_word(char32_t character) {
  const int category = category_of(character);
  return code_point(character) == '_' || is_letter(character) || category == UTF8PROC_CATEGORY_ND ||
         category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

bool is_lower(char32_t character) {
  return category_of(character) == UTF8PROC_CATEGORY_LL || lies_in(kOtherLower, code_point(character));
}

bool is_upper(char32_t character) {
  return category_of(character) == UTF8PROC_CATEGORY_LU || lies_in(kOtherUpper, code_point(character));
}

bool is_title(char32_t character) {
  return category_of(character) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(char32_t character) {
  const char32_t c = code_point(character);
  if (c < 0x7F) return c >= ' ';
  const int category = category_of(c);
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

bool is_lower_text(MarkedView text) {
  const auto is_other = [](char32_t character) { return is_upper(character) || is_title(character); };
  return std::any_of(text.begin(), text.end(), is_lower) && std::none_of(text.begin(), text.end(), is_other);
}

bool is_upper_text(MarkedView text) {
  const auto is_other = [](char32_t character) { return is_lower(character) || is_title(character); };
  return std::any_of(text.begin(), text.end(), is_upper) && std::none_of(text.begin(), text.end(), is_other);
}

MarkedText upper(MarkedView text) {
  MarkedText out;
  for (const char32_t character : text) append_upper(character, out);
  return out;
}

MarkedText lower(MarkedView text) {
  MarkedText out;
  for (size_t i = 0; i < text.size(); ++i) append_lower(text, i, out);
  return out;
}

MarkedText capitalize(MarkedView text) {
  MarkedText out;
  for (size_t i = 0; i < text.size(); ++i) i == 0 ? append_title(text[i], out) : append_lower(text, i, out);
  return out;
}

MarkedText title(MarkedView text) {
  MarkedText out;
  bool follows_letter = false;
  for (size_t i = 0; i < text.size(); ++i) {
    follows_letter ? append_lower(text, i, out) : append_title(text[i], out);
    follows_letter = is_cased(text[i]);
  }
  return out;
}

MarkedText swap_case(MarkedView text) {
  MarkedText out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_upper(text[i])) append_lower(text, i, out);
    else if (is_lower(text[i])) append_upper(text[i], out);
    else out.push_back(text[i]);
  }
  return out;
}

}  // namespace zt::data::jinja
