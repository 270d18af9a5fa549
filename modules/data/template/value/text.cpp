#include "template/value/text.h"

#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

// Calls `found` with the offset of each occurrence, overlapping ones too, until it returns false: the algorithm of Knuth, Morris
// and Pratt. `part` must not be empty.
template <class Found>
void for_each_occurrence(MarkedView text, MarkedView part, size_t from, Found found) {
  std::vector<size_t> border(part.size(), 0);  // length of the longest proper prefix of part[0 .. i] that is also its suffix
  for (size_t i = 1, length = 0; i < part.size(); ++i) {
    while (length > 0 && !MarkedTraits::eq(part[i], part[length])) length = border[length - 1];
    if (MarkedTraits::eq(part[i], part[length])) ++length;
    border[i] = length;
  }
  for (size_t i = from, length = 0; i < text.size(); ++i) {
    while (length > 0 && !MarkedTraits::eq(text[i], part[length])) length = border[length - 1];
    if (MarkedTraits::eq(text[i], part[length])) ++length;
    if (length < part.size()) continue;
    if (!found(i + 1 - length)) return;
    length = border[length - 1];
  }
}

// Returns the number of bytes of the character that begins with `first`, or 0 if no character begins with it.
size_t utf8_length(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

}  // namespace

int MarkedTraits::compare(const char32_t* left, const char32_t* right, size_t length) {
  for (size_t i = 0; i < length; ++i)
    if (!eq(left[i], right[i])) return lt(left[i], right[i]) ? -1 : 1;
  return 0;
}

const char32_t* MarkedTraits::find(const char32_t* text, size_t length, const char32_t& character) {
  for (size_t i = 0; i < length; ++i)
    if (eq(text[i], character)) return text + i;
  return nullptr;
}

std::optional<MarkedText> from_utf8(std::string_view text, char32_t marks) {
  MarkedText out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const size_t length = utf8_length(first);
    if (length == 0 || length > text.size() - i) return std::nullopt;
    char32_t character = length == 1 ? first : first & (0x7F >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return std::nullopt;
      character = character << 6 | (next & 0x3F);
    }
    constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool is_surrogate = character >= 0xD800 && character < 0xE000;
    if (character < kSmallest[length] || is_surrogate || character > 0x10FFFF) return std::nullopt;
    out.push_back(character | marks);
    i += length;
  }
  return out;
}

MarkedText from_ascii(std::string_view text) {
  return MarkedText(text.begin(), text.end());
}

void append_utf8(char32_t character, std::string& out) {
  char32_t c = code_point(character);
  if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c >= 0x10000) put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F));
  else if (c >= 0x800) put(0xE0 | c >> 12);
  if (c >= 0x800) put(0x80 | (c >> 6 & 0x3F));
  else put(0xC0 | c >> 6);
  put(0x80 | (c & 0x3F));
}

std::string to_utf8(MarkedView text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t character : text) append_utf8(character, out);
  return out;
}

void append_ascii(std::string_view text, char32_t marks, MarkedText& out) {
  for (const char character : text) out.push_back(static_cast<unsigned char>(character) | marks);
}

MarkedText with_marks(MarkedText text, char32_t marks) {
  for (char32_t& character : text) character |= marks;
  return text;
}

char32_t all_marks(MarkedView text) {
  char32_t marks = 0;
  for (const char32_t character : text) marks |= marks_of(character);
  return marks;
}

size_t find_text(MarkedView text, MarkedView part, size_t from) {
  if (part.empty()) return from <= text.size() ? from : MarkedView::npos;
  size_t result = MarkedView::npos;
  for_each_occurrence(text, part, from, [&](size_t at) {
    result = at;
    return false;
  });
  return result;
}

size_t find_last_text(MarkedView text, MarkedView part) {
  if (part.empty()) return text.size();
  size_t result = MarkedView::npos;
  for_each_occurrence(text, part, 0, [&](size_t at) {
    result = at;
    return true;
  });
  return result;
}

std::vector<size_t> occurrences(MarkedView text, MarkedView part, size_t limit) {
  std::vector<size_t> result;
  if (limit == 0) return result;
  for_each_occurrence(text, part, 0, [&](size_t at) {
    if (result.empty() || at >= result.back() + part.size()) result.push_back(at);
    return result.size() < limit;
  });
  return result;
}

MarkedView strip(MarkedView text, StripSide side, const std::function<bool(char32_t)>& is_stripped) {
  if (side != StripSide::right)
    while (!text.empty() && is_stripped(text.front())) text.remove_prefix(1);
  if (side != StripSide::left)
    while (!text.empty() && is_stripped(text.back())) text.remove_suffix(1);
  return text;
}

MarkedView strip(MarkedView text, StripSide side) {
  return strip(text, side, is_space);
}

std::vector<MarkedView> words_of(MarkedView text) {
  std::vector<MarkedView> words;
  for (size_t i = 0; i < text.size();) {
    while (i < text.size() && is_space(text[i])) ++i;
    const size_t begin = i;
    while (i < text.size() && !is_space(text[i])) ++i;
    if (i > begin) words.push_back(text.substr(begin, i - begin));
  }
  return words;
}

std::vector<MarkedView> lines_of(MarkedView text, LineEnds ends) {
  std::vector<MarkedView> lines;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    while (i < text.size() && !is_line_end(text[i])) ++i;
    const size_t end = i;
    if (i < text.size()) {
      const bool is_pair = code_point(text[i]) == '\r' && i + 1 < text.size() && code_point(text[i + 1]) == '\n';
      i += is_pair ? 2 : 1;
    }
    lines.push_back(text.substr(begin, (ends == LineEnds::kept ? i : end) - begin));
  }
  return lines;
}

}  // namespace zt::data::jinja
