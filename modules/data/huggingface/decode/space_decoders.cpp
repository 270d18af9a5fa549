#include "huggingface/decode/space_decoders.h"

#include <algorithm>

#include "huggingface/text/metaspace.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

// Replaces each place of a string that is not empty.
std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string_view::npos; found = text.find(from, at)) {
    result.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  return result.append(text.substr(at));
}

// Undoes the spaces that splitting English text leaves, as tokenizers does.
void clean_up(std::string& text) {
  constexpr std::string_view kRules[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                            {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                            {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) text = replaced(text, from, to);
}

class MetaspaceDecoder : public TokenDecoder {
 public:
  explicit MetaspaceDecoder(Metaspace options) : options_(std::move(options)) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool is_start = i == 0 && options_.scheme != PrependScheme::never;
      tokens[i] = replaced(tokens[i], options_.replacement, is_start ? "" : " ");
    }
  }
  void decode_one(std::string& token, bool) const override { token = replaced(token, options_.replacement, " "); }

 private:
  Metaspace options_;
};

class WordPieceDecoder : public TokenDecoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleans_up) : prefix_(std::move(prefix)), cleans_up_(cleans_up) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) decode_one(tokens[i], false);
      else if (cleans_up_) clean_up(tokens[i]);
    }
  }
  void decode_one(std::string& token, bool) const override {
    if (token.starts_with(prefix_)) token.erase(0, prefix_.size());
    else token.insert(token.begin(), ' ');
    if (cleans_up_) clean_up(token);
  }

 private:
  std::string prefix_;  // of tokens that do not start a word
  bool cleans_up_;
};

class SuffixDecoder : public TokenDecoder {
 public:
  explicit SuffixDecoder(std::string suffix) : suffix_(std::move(suffix)) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = replaced(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }
  void decode_one(std::string& token, bool) const override { token = replaced(token, suffix_, " "); }

 private:
  std::string suffix_;  // of the last token of a word
};

// Connectionist temporal classification (Graves et al. 2006): equal neighbours are one token.
class CtcDecoder : public TokenDecoder {
 public:
  CtcDecoder(std::string pad, std::string delimiter, bool cleans_up)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleans_up_(cleans_up) {}

  void decode(std::vector<std::string>& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) decode_one(token, false);
    std::erase(tokens, "");
  }
  void decode_one(std::string& token, bool) const override {
    token = replaced(token, pad_, "");
    if (!cleans_up_) return;
    clean_up(token);
    token = replaced(token, delimiter_, " ");
  }

 private:
  std::string pad_, delimiter_;
  bool cleans_up_;
};

// Returns a text that is not empty: to replace an empty text would write between all characters.
std::string text_to_replace(const JsonFields& fields, std::string_view name) {
  std::string text = fields.text(name);
  if (text.empty()) fields.refuse("decoder", fmt::format("{} is empty", name));
  return text;
}

}  // namespace

std::unique_ptr<TokenDecoder> parse_space_decoder(const std::string& type, const JsonFields& fields) {
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(parse_metaspace(fields));
  if (type == "WordPiece") {
    fields.allow_only({"type", "prefix", "cleanup"});
    return std::make_unique<WordPieceDecoder>(fields.text("prefix"), fields.flag("cleanup"));
  }
  if (type == "BPEDecoder") {
    fields.allow_only({"type", "suffix"});
    return std::make_unique<SuffixDecoder>(text_to_replace(fields, "suffix"));
  }
  if (type == "CTC") {
    fields.allow_only({"type", "pad_token", "word_delimiter_token", "cleanup"});
    return std::make_unique<CtcDecoder>(text_to_replace(fields, "pad_token"), text_to_replace(fields, "word_delimiter_token"),
                                        fields.flag("cleanup"));
  }
  return nullptr;
}

}  // namespace zt::data::huggingface
