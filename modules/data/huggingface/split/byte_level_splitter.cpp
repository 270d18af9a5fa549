#include "huggingface/split/byte_level_splitter.h"

#include "huggingface/text/byte_level.h"

namespace zt::data::huggingface {

namespace {

const UnicodeRegex& regex_of_gpt2() {
  static const UnicodeRegex regex =
      UnicodeRegex::from_oniguruma(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
  return regex;
}

class ByteLevelSplitter : public PreTokenizer {
 public:
  ByteLevelSplitter(bool adds_space, bool uses_regex, bool leaves_bytes)
      : adds_space_(adds_space), uses_regex_(uses_regex), leaves_bytes_(leaves_bytes) {}

  void split(SplitText& text) const override {
    if (adds_space_) {
      text.rewrite([&](const TextRange& word) { return text.text_of(word).starts_with(' ') ? "" : " "; },
                   [](std::string_view part, std::string& out) { out += part; });
    }
    if (uses_regex_) {
      const UnicodeRegex& regex = regex_of_gpt2();
      text.split_by([&](std::string_view word, std::vector<PatternSpan>& spans) { regex.find_all(word, spans); },
                    MatchBehavior::isolated);
    }
    if (!leaves_bytes_) {
      text.rewrite([](const TextRange&) { return ""; },
                   [](std::string_view part, std::string& out) { append_byte_characters(out, part); });
    }
  }

 private:
  bool adds_space_, uses_regex_, leaves_bytes_;
};

}  // namespace

std::unique_ptr<PreTokenizer> parse_byte_level_splitter(const JsonFields& fields, bool leaves_bytes) {
  fields.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  return std::make_unique<ByteLevelSplitter>(fields.flag("add_prefix_space"), fields.flag("use_regex", true), leaves_bytes);
}

}  // namespace zt::data::huggingface
