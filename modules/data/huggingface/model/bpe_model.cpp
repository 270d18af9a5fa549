#include "huggingface/model/bpe_model.h"

#include "huggingface/model/bpe_word.h"
#include "huggingface/model/byte_tokens.h"
#include "huggingface/text/unicode.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

struct BpeOptions {
  std::optional<int32_t> unknown;
  std::string prefix;  // before each character but the first of a word
  std::string suffix;  // after the last character of a word
  bool fuses_unknown = false;
  bool ignores_merges = false;  // a word that is a token becomes that token, whatever the merges are
};

class BpeModel : public SubwordModel {
 public:
  BpeModel(TokenTable tokens, MergeTable merges, BpeOptions options, bool has_byte_tokens)
      : SubwordModel(std::move(tokens)), merges_(std::move(merges)), options_(std::move(options)) {
    if (has_byte_tokens) bytes_ = ByteTokens(this->tokens());
  }

  void tokenize(std::string_view word, std::vector<int32_t>& out) const override {
    if (options_.ignores_merges) {
      if (const auto id = tokens().id_of(word)) return out.push_back(*id);
    }
    BpeWord symbols;
    bool has_unknown = false;  // an unknown token is not written yet
    std::string decorated;
    for (size_t at = 0, size = 0; at < word.size(); at += size) {
      size = bytes_of_character(word[at]);
      const std::string_view symbol = decorate(word, at, size, decorated);
      if (const auto id = tokens().id_of(symbol)) {
        flush_unknown(symbols, has_unknown);
        symbols.add(*id);
      } else if (!add_bytes(symbols, symbol) && options_.unknown) {
        // Characters that become bytes do not end a run of unknown ones: tokenizers writes that run after the bytes.
        if (!options_.fuses_unknown) flush_unknown(symbols, has_unknown);
        has_unknown = true;
      }
    }
    flush_unknown(symbols, has_unknown);
    symbols.merge(merges_);
    symbols.append_to(out);
  }

 private:
  // Returns the character with the prefix and the suffix that belong to its place. `buffer` may hold the result.
  std::string_view decorate(std::string_view word, size_t at, size_t size, std::string& buffer) const {
    const bool has_prefix = at > 0 && !options_.prefix.empty();
    const bool has_suffix = at + size == word.size() && !options_.suffix.empty();
    if (!has_prefix && !has_suffix) return word.substr(at, size);
    buffer = has_prefix ? options_.prefix : "";
    buffer += word.substr(at, size);
    if (has_suffix) buffer += options_.suffix;
    return buffer;
  }

  // Adds the tokens of the bytes. Returns false, and adds nothing, if one of them is missing.
  bool add_bytes(BpeWord& symbols, std::string_view symbol) const {
    if (!bytes_.has_all(symbol)) return false;
    for (const char byte : symbol) symbols.add(bytes_.id_of(byte));
    return true;
  }

  void flush_unknown(BpeWord& symbols, bool& has_unknown) const {
    if (has_unknown) symbols.add(*options_.unknown);
    has_unknown = false;
  }

  MergeTable merges_;
  BpeOptions options_;
  ByteTokens bytes_;
};

// Returns the two parts of a merge: ["a", "b"], or "a b" in older files.
std::pair<std::string, std::string> parts_of_merge(const JsonValue& merge, const std::string& place) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  const std::string line = merge.is_string() ? merge.get<std::string>() : "";
  const size_t space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
    fault("{}: a merge must be two tokens, such as [\"a\", \"b\"] or \"a b\"", place);
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

MergeTable parse_merges(const JsonFields& fields, const TokenTable& tokens, size_t prefix) {
  const JsonValue& list = fields.list("merges");
  MergeTable merges(list.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].is_string() && list[i].get_ref<const std::string&>().starts_with("#version")) continue;
    const std::string place = fmt::format("{}[{}]", fields.place_of("merges"), i);
    const auto [left, right] = parts_of_merge(list[i], place);
    const auto id_of_part = [&](const std::string& part) {
      const auto id = tokens.id_of(part);
      if (!id) fault("{}: the token '{}' of a merge is not in the vocabulary", place, part);
      return *id;
    };
    const int32_t left_id = id_of_part(left), right_id = id_of_part(right);
    if (right.size() < prefix)
      fault("{}: the second token '{}' of a merge is shorter than continuing_subword_prefix", place, right);
    merges.add(left_id, right_id, rank++, id_of_part(left + right.substr(prefix)));
  }
  return merges;
}

}  // namespace

std::unique_ptr<SubwordModel> parse_bpe_model(const JsonFields& fields) {
  fields.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                     "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (fields.has("dropout") && fields.any("dropout") != 0) {
    fields.refuse("model", "dropout would make encodings random: set it to null");
  }
  TokenTable tokens(fields.object("vocab"), fields.place_of("vocab"));
  BpeOptions options{.unknown = std::nullopt,
                     .prefix = fields.text("continuing_subword_prefix", ""),
                     .suffix = fields.text("end_of_word_suffix", ""),
                     .fuses_unknown = fields.flag("fuse_unk", false),
                     .ignores_merges = fields.flag("ignore_merges", false)};
  if (fields.has("unk_token")) {
    options.unknown = tokens.id_of(fields.text("unk_token"));
    if (!options.unknown) fault("{}: '{}' is not in the vocabulary", fields.place_of("unk_token"), fields.text("unk_token"));
  }
  MergeTable merges = parse_merges(fields, tokens, options.prefix.size());
  return std::make_unique<BpeModel>(std::move(tokens), std::move(merges), std::move(options),
                                    fields.flag("byte_fallback", false));
}

}  // namespace zt::data::huggingface
