#include "huggingface/text/unicode.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstring>

#include "huggingface/text/unicode_exceptions.h"

namespace zt::data::huggingface {

namespace {

constexpr uint64_t kHighBits = 0x8080808080808080;

// Returns the number of bytes of the valid character at the start of `text`, or 0.
size_t valid_character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t size = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (size < 2) return size;
  if (text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  }
  const auto second = static_cast<unsigned char>(text[1]);
  const bool is_bad = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
                      (first == 0xF4 && second > 0x8F);
  return is_bad ? 0 : size;
}

// Returns whether two or three bytes are the start of a character.
bool can_start_character(std::string_view bytes) {
  std::string filled(bytes);
  while (filled.size() < bytes_of_character(bytes[0])) filled += '\x80';
  return valid_character_bytes(filled) != 0;
}

utf8proc_category_t category_of(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

bool is_mark(utf8proc_category_t category) {
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

}  // namespace

size_t find_bad_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    uint64_t block = 0;
    if (text.size() - at >= sizeof(block)) {
      std::memcpy(&block, text.data() + at, sizeof(block));
      if ((block & kHighBits) == 0) {
        at += sizeof(block);
        continue;
      }
    }
    const size_t size = valid_character_bytes(text.substr(at));
    if (size == 0) return at;
    at += size;
  }
  return std::string_view::npos;
}

char32_t character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return first;
  if (first < 0xE0) return (first & 0x1F) << 6 | (byte(1) & 0x3F);
  if (first < 0xF0) return (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  return (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

void append_character(std::string& text, char32_t character) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (character >> shift & 0x3F)); };
  if (character < 0x80) {
    text += static_cast<char>(character);
  } else if (character < 0x800) {
    text += {static_cast<char>(0xC0 | character >> 6), tail(0)};
  } else if (character < 0x10000) {
    text += {static_cast<char>(0xE0 | character >> 12), tail(6), tail(0)};
  } else {
    text += {static_cast<char>(0xF0 | character >> 18), tail(12), tail(6), tail(0)};
  }
}

// Unicode's rule (chapter 3.9, "U+FFFD Substitution of Maximal Subparts"): bytes that start a character, and could go on, are one
// part.
std::string replace_bad_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t bad = find_bad_utf8(text);
    result += text.substr(0, bad);
    if (bad == std::string_view::npos) break;
    text.remove_prefix(bad);
    // A character of three or four bytes is cut short where its valid start ends.
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t most = first >= 0xF0 && first < 0xF5 ? 3 : first >= 0xE0 && first < 0xF0 ? 2 : 1;
    size_t size = 1;
    while (size < most && size < text.size() && can_start_character(text.substr(0, size + 1))) ++size;
    result += "\xEF\xBF\xBD";
    text.remove_prefix(size);
  }
  return result;
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  return count;
}

bool is_white_space(char32_t character) {
  if (character < 0x80) return character == ' ' || (character >= '\t' && character <= '\r');
  if (character < 0x1680) return character == 0x85 || character == 0xA0;
  return character == 0x1680 || (character >= 0x2000 && character <= 0x200A) || character == 0x2028 || character == 0x2029 ||
         character == 0x202F || character == 0x205F || character == 0x3000;
}

bool is_numeric(char32_t character) {
  const auto category = category_of(character);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t character) {
  if (character < 0x80) {
    return (character > ' ' && character < '0') || (character > '9' && character < 'A') || (character > 'Z' && character < 'a') ||
           (character > 'z' && character < 0x7F);
  }
  const auto category = category_of(character);
  const bool is_now = category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
  return is_now != is_exception(Exceptions::punctuation, character);
}

bool is_nonspacing_mark(char32_t character) {
  return (category_of(character) == UTF8PROC_CATEGORY_MN) != is_exception(Exceptions::nonspacing_mark, character);
}

bool is_combining_mark(char32_t character) {
  return is_mark(category_of(character)) != is_exception(Exceptions::combining_mark, character);
}

bool is_control(char32_t character) {
  const auto category = category_of(character);
  const bool is_now = category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
  return is_now != is_exception(Exceptions::control, character);
}

void append_lower_case(std::string& text, char32_t character) {
  if (character < 0x80) {
    text += static_cast<char>(character >= 'A' && character <= 'Z' ? character + ('a' - 'A') : character);
  } else if (character == 0x130) {
    text += "i\xCC\x87";  // the only lower case with two characters: i and a dot above
  } else {
    append_character(text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
  }
}

}  // namespace zt::data::huggingface
