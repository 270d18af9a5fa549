#include "template/syntax/literal.h"

#include <charconv>

#include "zt/base/error.h"

namespace zt::data::jinja {

namespace {

// Returns the value of a digit, or 99.
int digit_value(char32_t character) {
  const char32_t c = code_point(character);
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (c >= 'a' && c <= 'z') return static_cast<int>(c - 'a') + 10;
  if (c >= 'A' && c <= 'Z') return static_cast<int>(c - 'A') + 10;
  return 99;
}

// Returns the end of the digits that begin at `at`. One underscore is allowed before each digit, except before the first one
// unless `leading_underscore`.
size_t digits_end(MarkedView source, size_t at, int base, bool leading_underscore) {
  bool is_first = !leading_underscore;
  while (at < source.size()) {
    const bool skips = !is_first && code_point(source[at]) == '_' && at + 1 < source.size();
    const size_t digit = skips ? at + 1 : at;
    if (digit_value(source[digit]) >= base) break;
    at = digit + 1;
    is_first = false;
  }
  return at;
}

char32_t lower_at(MarkedView source, size_t at) {
  return at < source.size() ? code_point(source[at]) | 0x20 : 0;
}

// Returns the number of digits after a prefix, and the base, of "0x", "0o" or "0b".
int base_of_prefix(MarkedView source, size_t at) {
  if (at >= source.size() || code_point(source[at]) != '0') return 10;
  switch (lower_at(source, at + 1)) {
    case 'x':
      return 16;
    case 'o':
      return 8;
    case 'b':
      return 2;
    default:
      return 10;
  }
}

// Reads exactly `count` digits. Returns nullopt if there are fewer, or the number is no code point.
std::optional<char32_t> read_code(MarkedView text, size_t at, size_t count) {
  if (count > text.size() - at) return std::nullopt;
  char32_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    const int digit = digit_value(text[at + i]);
    if (digit >= 16 || value > 0x110000) return std::nullopt;
    value = value * 16 + static_cast<char32_t>(digit);
  }
  if (value > 0x10FFFF) return std::nullopt;
  return value;
}

// Python encodes such a character as an escape first, so that the backslash escapes the backslash of that escape.
void append_backslash_before(char32_t c, MarkedText& out) {
  const auto number = static_cast<uint32_t>(c);
  append_ascii("\\", 0, out);
  append_ascii(c < 0x100     ? fmt::format("x{:02x}", number)
               : c < 0x10000 ? fmt::format("u{:04x}", number)
                             : fmt::format("U{:08x}", number),
               0, out);
}

// Appends what the escape after a backslash at `at - 1` means. Returns the offset after it, or npos if it is wrong.
size_t read_escape(MarkedView text, size_t at, MarkedText& out) {
  const char32_t c = code_point(text[at]);
  constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
  if (c >= 0x80) return append_backslash_before(c, out), at + 1;
  if (c == '\n') return at + 1;
  if (c == 'N') return MarkedView::npos;
  if (const size_t which = kLetters.find(static_cast<char>(c)); which != std::string_view::npos) {
    out.push_back(static_cast<unsigned char>(kMeanings[which]));
    return at + 1;
  }
  if (c >= '0' && c <= '7') {
    char32_t value = 0;
    size_t end = at;
    while (end < text.size() && end < at + 3 && digit_value(text[end]) < 8)
      value = value * 8 + static_cast<char32_t>(digit_value(text[end++]));
    out.push_back(value);
    return end;
  }
  const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (count == 0) {
    out.push_back('\\'), out.push_back(c);
    return at + 1;
  }
  const auto value = read_code(text, at + 1, count);
  if (!value) return MarkedView::npos;
  out.push_back(*value);
  return at + 1 + count;
}

std::string plain_digits(MarkedView digits) {
  std::string text;
  for (const char32_t character : digits)
    if (code_point(character) != '_') text.push_back(static_cast<char>(code_point(character)));
  return text;
}

}  // namespace

size_t float_length(MarkedView source, size_t at) {
  if (at > 0 && code_point(source[at - 1]) == '.') return 0;
  const auto digits_at = [&](size_t from) { return digits_end(source, from, 10, false); };
  const size_t whole = digits_at(at);
  if (whole == at) return 0;
  size_t end = whole;
  if (end < source.size() && code_point(source[end]) == '.' && digits_at(end + 1) > end + 1) end = digits_at(end + 1);
  if (lower_at(source, end) == 'e') {
    size_t digits = end + 1;
    if (digits < source.size() && (code_point(source[digits]) == '+' || code_point(source[digits]) == '-')) ++digits;
    if (digits_at(digits) > digits) end = digits_at(digits);
  }
  return end == whole ? 0 : end - at;
}

size_t integer_length(MarkedView source, size_t at) {
  if (at >= source.size() || digit_value(source[at]) >= 10) return 0;
  const int base = base_of_prefix(source, at);
  if (base != 10) {
    const size_t end = digits_end(source, at + 2, base, true);
    if (end > at + 2) return end - at;
  }
  if (code_point(source[at]) == '0') return digits_end(source, at, 1, false) - at;
  return digits_end(source, at, 10, false) - at;
}

std::optional<int64_t> integer_value(MarkedView digits) {
  const int base = base_of_prefix(digits, 0);
  const std::string text = plain_digits(base == 10 ? digits : digits.substr(2));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

double float_value(MarkedView digits) {
  const std::string text = plain_digits(digits);
  return std::strtod(text.c_str(), nullptr);
}

std::optional<MarkedText> unescape(MarkedView text) {
  MarkedText out;
  for (size_t i = 0; i < text.size();) {
    if (code_point(text[i]) != '\\') {
      out.push_back(text[i++]);
      continue;
    }
    if (i + 1 >= text.size()) return std::nullopt;
    i = read_escape(text, i + 1, out);
    if (i == MarkedView::npos) return std::nullopt;
  }
  return out;
}

}  // namespace zt::data::jinja
