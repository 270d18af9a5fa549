#include "huggingface/decode/text_decoders.h"

#include "huggingface/text/text_pattern.h"
#include "huggingface/text/unicode.h"

namespace zt::data::huggingface {

namespace {

class FuseDecoder : public TokenDecoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::string text;
    for (const std::string& token : tokens) text += token;
    tokens.assign(1, text);
  }
  void decode_one(std::string&, bool) const override {}
  bool fuses() const override { return true; }
};

// Removes up to `start` and `stop` times a character from the ends of each token.
class StripDecoder : public TokenDecoder {
 public:
  StripDecoder(std::string character, int64_t start, int64_t stop)
      : character_(std::move(character)), start_(start), stop_(stop) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (int64_t i = 0; i < start_ && rest.starts_with(character_); ++i) rest.remove_prefix(character_.size());
      for (int64_t i = 0; i < stop_ && rest.ends_with(character_); ++i) rest.remove_suffix(character_.size());
      token = std::string(rest);
    }
  }
  // The start of a text that is fused is not within a later token.
  void decode_one(std::string& token, bool is_fused) const override {
    if (is_fused) return;
    std::vector<std::string> tokens{std::move(token)};
    decode(tokens);
    token = std::move(tokens[0]);
  }

 private:
  std::string character_;
  int64_t start_, stop_;
};

class ReplaceDecoder : public TokenDecoder {
 public:
  ReplaceDecoder(TextPattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) decode_one(token, false);
  }
  void decode_one(std::string& token, bool) const override {
    if (find_bad_utf8(token) != std::string_view::npos) return;  // a byte of a character, which no pattern matches
    std::vector<PatternSpan> spans;
    pattern_.find_all(token, spans);
    std::string changed;
    for (const PatternSpan& span : spans) {
      if (span.is_match) changed += content_;
      else changed.append(token, span.begin, span.end - span.begin);
    }
    token = std::move(changed);
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

}  // namespace

std::unique_ptr<TokenDecoder> parse_text_decoder(const std::string& type, const JsonFields& fields) {
  if (type == "Fuse") {
    fields.allow_only({"type"});
    return std::make_unique<FuseDecoder>();
  }
  if (type == "Strip") {
    fields.allow_only({"type", "content", "start", "stop"});
    return std::make_unique<StripDecoder>(fields.character("content"), fields.integer("start", 0, INT64_MAX),
                                          fields.integer("stop", 0, INT64_MAX));
  }
  if (type == "Replace") {
    fields.allow_only({"type", "pattern", "content"});
    return std::make_unique<ReplaceDecoder>(TextPattern(fields.fields("pattern")), fields.text("content"));
  }
  return nullptr;
}

}  // namespace zt::data::huggingface
