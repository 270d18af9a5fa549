#include "template/filters/word_wrap.h"

#include <algorithm>

#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

bool is_wrap_space(char32_t character) {
  const char32_t c = code_point(character);
  return c == ' ' || (c >= 9 && c <= 13);
}

bool is_plain_letter(char32_t character) {
  return is_word(character) && !is_decimal(character) && !(code_point(character) < 0x80 && is_digit(character));
}

bool is_word_punctuation(char32_t character) {
  return is_word(character) || std::u32string_view(U"!\"'&.,?").find(code_point(character)) != std::u32string_view::npos;
}

// Finds the places where textwrap of Python divides a line.
class WrapScanner {
 public:
  explicit WrapScanner(MarkedView text) : text_(text) {}

  // Returns the end of the chunk that begins at `at`: white space, a dash, or a word up to a hyphen that may be divided.
  size_t chunk_end(size_t at) const {
    if (is_space_at(at)) return skip(at, [&](size_t i) { return is_space_at(i); });
    if (const size_t end = dash_end(at); end != at && at > 0 && is_word_punctuation(text_[at - 1])) return end;
    for (size_t end = at + 1; end <= text_.size(); ++end) {
      if (end == text_.size() || is_space_at(end)) return end;
      if (is_word_punctuation(text_[end - 1]) && dash_end(end) != end) return end;
      if (code_point(text_[end]) == '-' && is_hyphen_of_word(at, end)) return end + 1;
    }
    return text_.size();
  }

 private:
  bool is_space_at(size_t at) const { return at < text_.size() && is_wrap_space(text_[at]); }
  bool is_hyphen(size_t at) const { return at < text_.size() && code_point(text_[at]) == '-'; }
  bool is_letter_at(size_t at) const { return at < text_.size() && is_plain_letter(text_[at]); }
  template <class Property>
  size_t skip(size_t at, Property property) const {
    while (at < text_.size() && property(at)) ++at;
    return at;
  }

  // Returns the end of at least two hyphens before a word character, or `at` if there is no such dash.
  size_t dash_end(size_t at) const {
    const size_t end = skip(at, [&](size_t i) { return is_hyphen(i); });
    return end >= at + 2 && end < text_.size() && is_word(text_[end]) ? end : at;
  }

  // Returns whether the word may be divided after the hyphen at `at`: letters come before and after it.
  bool is_hyphen_of_word(size_t, size_t at) const {
    const bool two_letters = at >= 2 && is_letter_at(at - 1) && is_letter_at(at - 2);
    const bool letter_hyphen_letter = at >= 3 && is_word_punctuation(text_[at - 1]) && is_hyphen(at - 2) && is_letter_at(at - 3);
    const size_t next = is_hyphen(at + 2) ? at + 3 : at + 2;
    return (two_letters || letter_hyphen_letter) && is_letter_at(at + 1) && is_letter_at(next);
  }

  MarkedView text_;
};

std::vector<MarkedView> chunks_of(MarkedView line, bool breaks_on_hyphens) {
  std::vector<MarkedView> chunks;
  const WrapScanner scanner(line);
  for (size_t at = 0; at < line.size();) {
    size_t end = at;
    if (breaks_on_hyphens) {
      end = scanner.chunk_end(at);
    } else {
      const bool is_space = is_wrap_space(line[at]);
      while (end < line.size() && is_wrap_space(line[end]) == is_space) ++end;
    }
    chunks.push_back(line.substr(at, end - at));
    at = end;
  }
  return chunks;
}

bool is_blank(MarkedView text) {
  return strip(text).empty();
}

// Returns how many characters of a word that is too long go into the line.
size_t broken_length(MarkedView word, size_t space, bool breaks_on_hyphens) {
  if (!breaks_on_hyphens || word.size() <= space) return space;
  const size_t hyphen = word.substr(0, space).rfind(U'-');
  const bool follows_other = hyphen != MarkedView::npos && hyphen > 0 &&
                             std::any_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(hyphen),
                                         [](char32_t character) { return code_point(character) != '-'; });
  return follows_other ? hyphen + 1 : space;
}

}  // namespace

std::vector<MarkedText> wrap_line(MarkedView line, const WrapRules& rules) {
  std::vector<MarkedText> lines;
  std::vector<MarkedView> chunks = chunks_of(line, rules.breaks_on_hyphens);
  std::reverse(chunks.begin(), chunks.end());  // the next one is the last
  while (!chunks.empty()) {
    std::vector<MarkedView> current;
    size_t length = 0;
    if (!lines.empty() && is_blank(chunks.back())) chunks.pop_back();
    while (!chunks.empty() && length + chunks.back().size() <= rules.width) {
      length += chunks.back().size();
      current.push_back(chunks.back());
      chunks.pop_back();
    }
    if (!chunks.empty() && chunks.back().size() > rules.width) {
      if (rules.breaks_long_words) {
        const size_t end = broken_length(chunks.back(), rules.width - length, rules.breaks_on_hyphens);
        current.push_back(chunks.back().substr(0, end));
        chunks.back().remove_prefix(end);
      } else if (current.empty()) {
        current.push_back(chunks.back());
        chunks.pop_back();
      }
    }
    if (!current.empty() && is_blank(current.back())) current.pop_back();
    if (current.empty()) continue;
    MarkedText& text = lines.emplace_back();
    for (const MarkedView chunk : current) text += chunk;
  }
  return lines;
}

}  // namespace zt::data::jinja
