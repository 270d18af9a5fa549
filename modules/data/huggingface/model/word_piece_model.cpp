#include "huggingface/model/word_piece_model.h"

#include "huggingface/text/unicode.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

class WordPieceModel : public SubwordModel {
 public:
  WordPieceModel(TokenTable tokens, int32_t unknown, std::string prefix, int64_t longest_word)
      : SubwordModel(std::move(tokens)), unknown_(unknown), prefix_(std::move(prefix)), longest_word_(longest_word) {}

  // A word with a part that no token covers becomes one unknown token.
  void tokenize(std::string_view word, std::vector<int32_t>& out) const override {
    const size_t before = out.size();
    const auto characters = static_cast<int64_t>(count_characters(word));
    bool is_covered = characters <= longest_word_;
    std::string buffer;
    for (size_t at = 0; is_covered && at < word.size();) {
      const size_t size = append_longest(word, at, out, buffer);
      is_covered = size > 0;
      at += size;
    }
    if (is_covered) return;
    out.resize(before);
    out.push_back(unknown_);
  }

 private:
  // Appends the longest token at the offset `at`. Returns its size in the word, or 0 if there is none.
  size_t append_longest(std::string_view word, size_t at, std::vector<int32_t>& out, std::string& buffer) const {
    size_t end = std::min(word.size(), at + tokens().longest());
    while (end < word.size() && end > at && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) --end;
    for (; end > at; end = previous_character(word, end)) {
      std::string_view part = word.substr(at, end - at);
      if (at > 0) {
        buffer = prefix_;
        buffer += part;
        part = buffer;
      }
      if (const auto id = tokens().id_of(part)) {
        out.push_back(*id);
        return end - at;
      }
    }
    return 0;
  }

  int32_t unknown_;
  std::string prefix_;    // of tokens that do not start a word
  int64_t longest_word_;  // characters; a longer word is unknown
};

}  // namespace

std::unique_ptr<SubwordModel> parse_word_piece_model(const JsonFields& fields) {
  fields.allow_only({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  TokenTable tokens(fields.object("vocab"), fields.place_of("vocab"));
  const std::string unknown = fields.text("unk_token");
  const auto id = tokens.id_of(unknown);
  if (!id) fault("{}: '{}' is not in the vocabulary", fields.place_of("unk_token"), unknown);
  return std::make_unique<WordPieceModel>(std::move(tokens), *id, fields.text("continuing_subword_prefix"),
                                          fields.integer("max_input_chars_per_word", 0, INT64_MAX));
}

}  // namespace zt::data::huggingface
