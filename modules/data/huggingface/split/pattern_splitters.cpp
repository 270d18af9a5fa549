#include "huggingface/split/pattern_splitters.h"

#include "huggingface/split/match_behavior.h"
#include "huggingface/text/text_pattern.h"
#include "huggingface/text/unicode_word.h"

namespace zt::data::huggingface {

namespace {

class PatternSplitter : public PreTokenizer {
 public:
  PatternSplitter(TextPattern pattern, MatchBehavior behavior, bool inverts)
      : pattern_(std::move(pattern)), behavior_(behavior), inverts_(inverts) {}

  void split(SplitText& text) const override {
    const auto find = [&](std::string_view word, std::vector<PatternSpan>& spans) {
      pattern_.find_all(word, spans);
      if (!inverts_) return;
      for (PatternSpan& span : spans) span.is_match = !span.is_match;
    };
    text.split_by(find, behavior_);
  }

 private:
  TextPattern pattern_;
  MatchBehavior behavior_;
  bool inverts_;
};

// Keeps runs of word characters, and runs of other characters that are not white space.
class WordSplitter : public PreTokenizer {
 public:
  void split(SplitText& text) const override {
    const auto find = [](std::string_view word, std::vector<PatternSpan>& spans) {
      words_and_symbols().find_all(word, spans);
      for (PatternSpan& span : spans) span.is_match = !span.is_match;
    };
    text.split_by(find, MatchBehavior::removed);
  }

 private:
  static const UnicodeRegex& words_and_symbols() {
    static const std::string word(kWordSet);
    static const UnicodeRegex regex("[" + word + "]+|[^" + word + "\\p{White_Space}]+", "\\w+|[^\\w\\s]+");
    return regex;
  }
};

}  // namespace

std::unique_ptr<PreTokenizer> parse_pattern_splitter(const std::string& type, const JsonFields& fields) {
  if (type == "Whitespace") {
    fields.allow_only({"type"});
    return std::make_unique<WordSplitter>();
  }
  if (type != "Split") return nullptr;
  fields.allow_only({"type", "pattern", "behavior", "invert"});
  return std::make_unique<PatternSplitter>(TextPattern(fields.fields("pattern")), behavior_from(fields, "behavior"),
                                           fields.flag("invert"));
}

}  // namespace zt::data::huggingface
