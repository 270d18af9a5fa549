// Encodes texts: added tokens, then the normalizers, the pre-tokenizers and the model of tokenizer.json.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "huggingface/added_tokens.h"
#include "huggingface/model/subword_model.h"
#include "huggingface/model/word_cache.h"
#include "huggingface/normalize/text_normalizer.h"
#include "huggingface/split/pre_tokenizer.h"
#include "huggingface/text/json_fields.h"
#include "zt/text/tokenizer.h"

namespace zt::data::huggingface {

// Threads: any; several may encode at the same time.
class TokenPipeline {
 public:
  // `fields` are those of the whole file. Throws Fault if they are wrong or not supported.
  explicit TokenPipeline(const JsonFields& fields);

  // Returns the largest id plus 1.
  int64_t vocab() const;
  // Appends the ids. Throws Fault if the text is not UTF-8, or if the model cannot encode it.
  void encode(std::string_view text, std::vector<int32_t>& out, const EncodeOptions& options) const;

  std::optional<int64_t> id_of(std::string_view token) const;
  bool is_special(int64_t id) const;
  // Returns the token as the file writes it; empty for an id without a token.
  std::string token_of(int64_t id) const;
  // Returns the token as decoders get it, or nullptr for an id without a token.
  const std::string* decoded_token(int64_t id) const;
  // Returns whether `decode` leaves out the token.
  bool is_skipped(const std::string& token) const { return added_.is_special(token); }

 private:
  void normalize(AlignedText& text) const;
  // Encode a part of the text that holds no added token that is looked for before normalization, and then one that holds none.
  void encode_part(std::string_view text, size_t begin, size_t end, const EncodeOptions& options, WordCache& cache,
                   std::vector<int32_t>& out) const;
  void encode_words(std::string_view text, size_t origin, WordCache& cache, std::vector<int32_t>& out) const;
  void encode_word(std::string_view word, WordCache& cache, std::string& buffer, std::vector<int32_t>& out) const;

  std::unique_ptr<SubwordModel> model_;
  std::vector<std::unique_ptr<TextNormalizer>> normalizers_;
  PreTokenizers pre_tokenizers_;
  AddedTokens added_;
  std::unique_ptr<WordCachePool> caches_ = std::make_unique<WordCachePool>();
};

}  // namespace zt::data::huggingface
