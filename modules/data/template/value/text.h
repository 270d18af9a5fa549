// Strings of templates: sequences of Unicode characters. Each character knows whether it comes from the input.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zt::data::jinja {

// Marks of a character, in bits that no code point uses. Comparisons and searches ignore them. Functions that copy a character,
// or make it from another one, keep them.
constexpr char32_t kFromInput = 0x80000000;  // the character comes from a string of the messages or variables
constexpr char32_t kInAnswer = 0x40000000;   // the template wrote the character in a {% generation %} block

constexpr char32_t code_point(char32_t character) {
  return character & 0x1FFFFF;
}
constexpr char32_t marks_of(char32_t character) {
  return character & (kFromInput | kInAnswer);
}

struct MarkedTraits : std::char_traits<char32_t> {
  static constexpr bool eq(char32_t left, char32_t right) { return code_point(left) == code_point(right); }
  static constexpr bool lt(char32_t left, char32_t right) { return code_point(left) < code_point(right); }
  static int compare(const char32_t* left, const char32_t* right, size_t length);
  static const char32_t* find(const char32_t* text, size_t length, const char32_t& character);
};
using MarkedText = std::basic_string<char32_t, MarkedTraits>;
using MarkedView = std::basic_string_view<char32_t, MarkedTraits>;

// Returns the characters of a text in UTF-8, each with `marks`, or nullopt if the text is not UTF-8.
std::optional<MarkedText> from_utf8(std::string_view text, char32_t marks);
// Returns the characters of a text in ASCII, without marks.
MarkedText from_ascii(std::string_view text);
// Returns the text in UTF-8. Lone surrogates, which UTF-8 cannot hold, become U+FFFD.
std::string to_utf8(MarkedView text);
void append_utf8(char32_t character, std::string& out);
// Appends the characters of a text in ASCII, each with `marks`.
void append_ascii(std::string_view text, char32_t marks, MarkedText& out);

// Returns the text with the marks of `marks` added to every character.
MarkedText with_marks(MarkedText text, char32_t marks);
// Returns the marks that at least one character has.
char32_t all_marks(MarkedView text);

// Returns the offset of the first occurrence at or after `from`, or npos. Takes time linear in both lengths.
size_t find_text(MarkedView text, MarkedView part, size_t from = 0);
// Returns the offset of the last occurrence, or npos. Takes time linear in both lengths.
size_t find_last_text(MarkedView text, MarkedView part);
// Returns the offsets of at most `limit` occurrences that do not overlap, from left to right. `part` must not be empty.
std::vector<size_t> occurrences(MarkedView text, MarkedView part, size_t limit);

enum class StripSide : uint8_t { left, right, both };
// Returns the text without the characters at its ends that `is_stripped` accepts.
MarkedView strip(MarkedView text, StripSide side, const std::function<bool(char32_t)>& is_stripped);
// The same for white space.
MarkedView strip(MarkedView text, StripSide side = StripSide::both);
// Returns the words between white space.
std::vector<MarkedView> words_of(MarkedView text);
// Returns the lines, where the line ends are those of Python's str.splitlines.
enum class LineEnds : uint8_t { dropped, kept };
std::vector<MarkedView> lines_of(MarkedView text, LineEnds ends = LineEnds::dropped);

}  // namespace zt::data::jinja
