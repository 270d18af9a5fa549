#include "huggingface/text/oniguruma_scanner.h"

#include <algorithm>

#include "huggingface/text/oniguruma_names.h"
#include "huggingface/text/unicode.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

constexpr size_t kLongestNumber = 5;  // digits of a bound of an interval; PCRE2 has at most 65535

bool is_letter_or_digit(char32_t character) {
  return (character >= '0' && character <= '9') || (character >= 'A' && character <= 'Z') ||
         (character >= 'a' && character <= 'z');
}

}  // namespace

void OnigurumaScanner::refuse(const std::string& construct) const {
  fault("{} at byte {} is not supported", construct, at_);
}

char OnigurumaScanner::peek() const {
  if (at_end()) refuse("the end of the pattern within a construct");
  return pattern_[at_];
}

char OnigurumaScanner::take() {
  const char byte = peek();
  ++at_;
  return byte;
}

bool OnigurumaScanner::take_if(std::string_view text) {
  if (!pattern_.substr(at_).starts_with(text)) return false;
  at_ += text.size();
  return true;
}

char32_t OnigurumaScanner::character() {
  peek();
  const char32_t character = character_at(pattern_, at_);
  at_ += bytes_of_character(pattern_[at_]);
  return character;
}

std::string OnigurumaScanner::literal() {
  const char32_t first = character();
  if (first == '.') return ".";
  return literal_of(first);
}

std::string OnigurumaScanner::literal_of(char32_t character) {
  if (is_letter_or_digit(character)) return std::string(1, static_cast<char>(character));
  return fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(character));
}

std::optional<std::string> OnigurumaScanner::class_escape() {
  const char kind = peek();
  if (kind == 's' || kind == 'S' || kind == 'd' || kind == 'D') {
    ++at_;
    return kind == 's' ? "\\p{White_Space}" : kind == 'S' ? "\\P{White_Space}" : kind == 'd' ? "\\p{Nd}" : "\\P{Nd}";
  }
  if (kind != 'p' && kind != 'P') return std::nullopt;
  ++at_;
  if (!take_if("{")) refuse("\\p without a name in braces");
  const bool is_negated = take_if("^") != (kind == 'P');
  const size_t end = pattern_.find('}', at_);
  if (end == std::string_view::npos) refuse("\\p{ without its '}'");
  const std::string_view name = pattern_.substr(at_, end - at_);
  const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(), [](char byte) {
    return is_letter_or_digit(static_cast<unsigned char>(byte)) || byte == '_' || byte == ' ' || byte == '-';
  });
  if (!is_name) refuse(fmt::format("the property '{}'", name));
  at_ = end + 1;
  return oniguruma_property(name, is_negated);
}

char32_t OnigurumaScanner::hexadecimal(size_t most_digits) {
  char32_t value = 0;
  size_t digits = 0;
  for (; digits < most_digits && !at_end(); ++digits) {
    const char byte = pattern_[at_];
    const int digit = byte >= '0' && byte <= '9'   ? byte - '0'
                      : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                      : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                                   : -1;
    if (digit < 0) break;
    value = value * 16 + static_cast<char32_t>(digit);
    ++at_;
  }
  if (digits == 0) refuse("an escape without hexadecimal digits");
  if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) refuse("an escape of something that is no character");
  return value;
}

char32_t OnigurumaScanner::character_escape() {
  const char32_t kind = character();
  switch (kind) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'a':
      return '\a';
    case 'e':
      return 0x1B;
    case 'u':
      return hexadecimal(4);
    case 'x':
      break;
    default:
      if (is_letter_or_digit(kind)) refuse(fmt::format("the escape '\\{}'", static_cast<char>(kind)));
      return kind;
  }
  if (take_if("{")) {
    const char32_t value = hexadecimal(8);
    if (!take_if("}")) refuse("\\x{ without its '}'");
    return value;
  }
  const char32_t byte = hexadecimal(2);
  if (byte >= 0x80) refuse("a byte of a character, as in \\xC2,");
  return byte;
}

std::string OnigurumaScanner::number() {
  const size_t begin = at_;
  while (!at_end() && pattern_[at_] >= '0' && pattern_[at_] <= '9') ++at_;
  return std::string(pattern_.substr(begin, at_ - begin));
}

std::optional<OnigurumaScanner::Interval> OnigurumaScanner::interval() {
  const size_t begin = at_;
  take();
  const std::string least = number();
  const bool is_fixed = !take_if(",");
  const std::string most = is_fixed ? "" : number();
  if ((least.empty() && most.empty()) || !take_if("}")) {
    at_ = begin;
    return std::nullopt;
  }
  if (least.size() > kLongestNumber || most.size() > kLongestNumber) refuse("a bound above 99999");
  return Interval{fmt::format("{{{}{}{}}}", least.empty() ? "0" : least, is_fixed ? "" : ",", most), is_fixed};
}

std::string OnigurumaScanner::group_start() {
  take();
  if (!take_if("?")) return "(?:";
  for (const char* start : {":", "=", "!", ">", "<=", "<!"}) {
    if (take_if(start)) return "(?" + std::string(start);
  }
  if (take_if("#")) {
    while (take() != ')') {
    }
    return "";
  }
  if (take_if("<")) {
    while (take() != '>') {
    }
    return "(?:";
  }
  std::string options = "(?";
  while (peek() != ':' && peek() != ')') {
    const char option = take();
    if (option != 'i' && option != 'm' && option != '-') refuse(fmt::format("the group '(?{}'", option));
    options += option == 'm' ? 's' : option;  // to Oniguruma, m is the option that lets a dot match a line feed
  }
  return options + take();
}

}  // namespace zt::data::huggingface
