// A text that pre-tokenizers split into words.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "huggingface/text/unicode.h"
#include "huggingface/text/unicode_regex.h"
#include "zt/text/tokenizer.h"

namespace zt::data::huggingface {

// Says what becomes of the parts that a pattern matches.
enum class MatchBehavior : unsigned char { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Threads: one at a time. Invariants: no word is empty; words ascend and do not overlap.
class SplitText {
 public:
  // Starts with one word: the whole text, which is valid UTF-8 and outlives the object. The first `origin` bytes come from the
  // first character of the whole text that is encoded (AlignedText).
  SplitText(std::string_view text, size_t origin);
  SplitText(const SplitText&) = delete;
  SplitText& operator=(const SplitText&) = delete;

  const std::vector<TextRange>& words() const { return words_; }
  std::string_view text_of(const TextRange& word) const { return text_.substr(word.begin, word.end - word.begin); }
  // Returns whether the word starts with something that comes from the first character of the whole text.
  bool is_at_origin(const TextRange& word) const { return word.begin < origin_; }

  // Splits each word. `find(text, spans)` replaces `spans` as UnicodeRegex::find_all.
  template <class Find>
  void split_by(const Find& find, MatchBehavior behavior) {
    std::vector<TextRange> parts;
    std::vector<PatternSpan> spans;
    for (const TextRange& word : words_) {
      find(text_of(word), spans);
      append_parts(spans, behavior, word.begin, parts);
    }
    words_ = std::move(parts);
  }

  // Splits each word at each character for which `is_match(character)` is true.
  template <class Predicate>
  void split_by_character(const Predicate& is_match, MatchBehavior behavior) {
    const auto find = [&](std::string_view text, std::vector<PatternSpan>& spans) {
      spans.clear();
      size_t written = 0;
      for (size_t at = 0, size = 0; at < text.size(); at += size) {
        size = bytes_of_character(text[at]);
        if (!is_match(character_at(text, at))) continue;
        if (written < at) spans.push_back({written, at, false});
        written = at + size;
        spans.push_back({at, written, true});
      }
      if (written < text.size()) spans.push_back({written, text.size(), false});
    };
    split_by(find, behavior);
  }

  // Rewrites each word: `prefix(word)` returns what is put before it, `map(text, out)` appends what becomes of whole characters.
  template <class Prefix, class Map>
  void rewrite(const Prefix& prefix, const Map& map) {
    std::string changed;
    std::vector<TextRange> parts;
    size_t origin = 0;
    for (const TextRange& word : words_) {
      const size_t begin = changed.size();
      const size_t first = std::clamp(origin_, word.begin, word.end);
      changed += std::string_view(prefix(word));
      map(text_of({word.begin, first}), changed);
      if (is_at_origin(word)) origin = changed.size();
      map(text_of({first, word.end}), changed);
      if (changed.size() > begin) parts.push_back({begin, changed.size()});
    }
    replace_words(std::move(changed), std::move(parts), origin);
  }

 private:
  static void append_parts(std::vector<PatternSpan>& spans, MatchBehavior behavior, size_t begin, std::vector<TextRange>& parts);
  void replace_words(std::string text, std::vector<TextRange> words, size_t origin);

  std::string_view text_;  // what the constructor was given, or owned_
  std::string owned_;
  std::vector<TextRange> words_;
  size_t origin_;
};

}  // namespace zt::data::huggingface
