// Regular expressions over UTF-8, by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace zt::data::huggingface {

// A part of a text that a pattern matches, or that lies between two such parts.
struct PatternSpan {
  size_t begin = 0, end = 0;
  bool is_match = false;
};

// Threads: any; several may search at the same time.
class UnicodeRegex {
 public:
  // `pattern` is in PCRE2's syntax; `source` is the pattern as the user knows it, for messages.
  // Throws Fault if the pattern is malformed or longer than 64 KiB.
  UnicodeRegex(const std::string& pattern, std::string source);
  // Translates a pattern of Oniguruma (see oniguruma.h). Throws Fault, which names the pattern.
  static UnicodeRegex from_oniguruma(const std::string& pattern);

  // Replaces `spans` by spans that cover `text`, which is valid UTF-8: matches from left to right, and what lies between. A match
  // may be empty, but not where the match before it ends. For an empty text there is one span, not a match.
  // Throws Fault, with the pattern and the place, if a match needs more than 10^6 steps of backtracking or 20 MiB of memory.
  void find_all(std::string_view text, std::vector<PatternSpan>& spans) const;
  // Returns whether the pattern matches at the start of the text.
  bool matches_at_start(std::string_view text) const;

 private:
  struct Code;

  std::string source_;
  std::shared_ptr<const Code> code_;
};

}  // namespace zt::data::huggingface
