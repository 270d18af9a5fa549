#include "huggingface/decode/byte_decoders.h"

#include "huggingface/model/byte_tokens.h"
#include "huggingface/text/byte_level.h"
#include "huggingface/text/unicode.h"

namespace zt::data::huggingface {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

class ByteLevelDecoder : public TokenDecoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (std::string& token : tokens) {
      decode_one(token, false);
      bytes += token;
    }
    tokens.assign(1, replace_bad_utf8(bytes));
  }
  void decode_one(std::string& token, bool) const override {
    if (auto bytes = bytes_of_characters(token)) token = std::move(*bytes);
  }
  bool fuses() const override { return true; }
};

class ByteFallbackDecoder : public TokenDecoder {
 public:
  // A run of tokens of bytes becomes a text, or one U+FFFD per byte if it is not UTF-8.
  void decode(std::vector<std::string>& tokens) const override {
    std::vector<std::string> decoded;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (find_bad_utf8(bytes) == std::string_view::npos) decoded.push_back(bytes);
      else decoded.insert(decoded.end(), bytes.size(), std::string(kReplacement));
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of_token(token)) {
        bytes += *byte;
        continue;
      }
      flush();
      decoded.push_back(std::move(token));
    }
    flush();
    tokens = std::move(decoded);
  }
  void decode_one(std::string& token, bool) const override {
    if (const auto byte = byte_of_token(token)) token.assign(1, *byte);
  }
};

}  // namespace

std::unique_ptr<TokenDecoder> parse_byte_decoder(const std::string& type, const JsonFields& fields) {
  if (type == "ByteLevel") {
    fields.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return std::make_unique<ByteLevelDecoder>();
  }
  if (type == "ByteFallback") {
    fields.allow_only({"type"});
    return std::make_unique<ByteFallbackDecoder>();
  }
  return nullptr;
}

}  // namespace zt::data::huggingface
