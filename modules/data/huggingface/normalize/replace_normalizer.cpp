#include "huggingface/normalize/replace_normalizer.h"

#include "huggingface/text/text_pattern.h"

namespace zt::data::huggingface {

namespace {

class ReplaceNormalizer : public TextNormalizer {
 public:
  ReplaceNormalizer(TextPattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(AlignedText& text) const override {
    std::vector<PatternSpan> spans;
    pattern_.find_all(text.text, spans);
    TextEdit edit(text);
    for (const PatternSpan& span : spans) {
      // As in tokenizers, the last byte of a match decides whether the content counts as part of the first character.
      if (span.is_match) edit.replace(span.begin, span.end, content_, span.end == 0 ? 0 : span.end - 1);
      else edit.keep(span.begin, span.end);
    }
    text = edit.finish();
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

}  // namespace

std::unique_ptr<TextNormalizer> parse_replace_normalizer(const std::string& type, const JsonFields& fields) {
  if (type != "Replace") return nullptr;
  fields.allow_only({"type", "pattern", "content"});
  return std::make_unique<ReplaceNormalizer>(TextPattern(fields.fields("pattern")), fields.text("content"));
}

}  // namespace zt::data::huggingface
