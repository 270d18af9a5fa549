#include "huggingface/split/character_splitters.h"

#include "huggingface/split/match_behavior.h"
#include "huggingface/text/scripts.h"

namespace zt::data::huggingface {

namespace {

// Splits at the characters for which `is_match` is true.
class CharacterSplitter : public PreTokenizer {
 public:
  CharacterSplitter(bool (*is_match)(char32_t), MatchBehavior behavior) : is_match_(is_match), behavior_(behavior) {}
  void split(SplitText& text) const override { text.split_by_character(is_match_, behavior_); }

 private:
  bool (*is_match_)(char32_t);
  MatchBehavior behavior_;
};

class BertSplitter : public PreTokenizer {
 public:
  void split(SplitText& text) const override {
    text.split_by_character(is_white_space, MatchBehavior::removed);
    text.split_by_character(is_punctuation, MatchBehavior::isolated);
  }
};

class DelimiterSplitter : public PreTokenizer {
 public:
  explicit DelimiterSplitter(char32_t delimiter) : delimiter_(delimiter) {}
  void split(SplitText& text) const override {
    text.split_by_character([&](char32_t character) { return character == delimiter_; }, MatchBehavior::removed);
  }

 private:
  char32_t delimiter_;
};

// Splits where the script changes. As in tokenizers, leaves out spaces before the first character with a script.
class ScriptSplitter : public PreTokenizer {
 public:
  void split(SplitText& text) const override {
    text.split_by(
        [](std::string_view word, std::vector<PatternSpan>& spans) {
          spans.clear();
          int last = kAnyScript;
          for (size_t at = 0; at < word.size(); at += bytes_of_character(word[at])) {
            const int script = script_of(character_at(word, at));
            if (script == kAnyScript) continue;
            if (script != last) {
              if (!spans.empty()) spans.back().end = at;
              spans.push_back({at, word.size(), false});
            }
            last = script;
          }
        },
        MatchBehavior::isolated);
  }
};

class LengthSplitter : public PreTokenizer {
 public:
  explicit LengthSplitter(int64_t length) : length_(length) {}

  void split(SplitText& text) const override {
    text.split_by(
        [&](std::string_view word, std::vector<PatternSpan>& spans) {
          spans.clear();
          int64_t characters = 0;
          for (size_t at = 0; at < word.size(); at += bytes_of_character(word[at])) {
            if (characters++ % length_ != 0) continue;
            if (!spans.empty()) spans.back().end = at;
            spans.push_back({at, word.size(), false});
          }
        },
        MatchBehavior::isolated);
  }

 private:
  int64_t length_;  // characters of a word
};

std::unique_ptr<PreTokenizer> parse_plain_splitter(const std::string& type) {
  if (type == "WhitespaceSplit") return std::make_unique<CharacterSplitter>(is_white_space, MatchBehavior::removed);
  if (type == "BertPreTokenizer") return std::make_unique<BertSplitter>();
  if (type == "UnicodeScripts") return std::make_unique<ScriptSplitter>();
  return nullptr;
}

}  // namespace

std::unique_ptr<PreTokenizer> parse_character_splitter(const std::string& type, const JsonFields& fields) {
  if (auto plain = parse_plain_splitter(type)) {
    fields.allow_only({"type"});
    return plain;
  }
  if (type == "Punctuation") {
    fields.allow_only({"type", "behavior"});
    const MatchBehavior behavior = fields.has("behavior") ? behavior_from(fields, "behavior") : MatchBehavior::isolated;
    return std::make_unique<CharacterSplitter>(is_punctuation, behavior);
  }
  if (type == "Digits") {
    fields.allow_only({"type", "individual_digits"});
    const bool is_single = fields.flag("individual_digits");
    return std::make_unique<CharacterSplitter>(is_numeric, is_single ? MatchBehavior::isolated : MatchBehavior::contiguous);
  }
  if (type == "CharDelimiterSplit") {
    fields.allow_only({"type", "delimiter"});
    return std::make_unique<DelimiterSplitter>(character_at(fields.character("delimiter"), 0));
  }
  if (type == "FixedLength") {
    fields.allow_only({"type", "length"});
    return std::make_unique<LengthSplitter>(fields.has("length") ? fields.integer("length", 1, INT64_MAX) : 5);
  }
  return nullptr;
}

}  // namespace zt::data::huggingface
