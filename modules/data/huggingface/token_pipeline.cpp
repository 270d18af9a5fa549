#include "huggingface/token_pipeline.h"

#include <algorithm>

#include "huggingface/text/byte_level.h"
#include "huggingface/text/unicode.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

// Returns the identity: each character of a part of a text comes from itself.
std::vector<TextRange> own_sources(std::string_view text, size_t offset) {
  std::vector<TextRange> sources;
  for (size_t at = 0, size = 0; at < text.size(); at += size) {
    size = bytes_of_character(text[at]);
    sources.insert(sources.end(), size, TextRange{offset + at, offset + at + size});
  }
  return sources;
}

}  // namespace

TokenPipeline::TokenPipeline(const JsonFields& fields) : model_(parse_subword_model(fields.fields("model"))) {
  if (fields.has("normalizer")) normalizers_ = parse_normalizers(fields.fields("normalizer"));
  if (fields.has("pre_tokenizer")) pre_tokenizers_ = parse_pre_tokenizers(fields.fields("pre_tokenizer"));
  if (fields.has("added_tokens")) {
    added_ = AddedTokens(fields.list("added_tokens"), fields.place_of("added_tokens"), *model_);
  }
  added_.prepare([&](AlignedText& text) { normalize(text); });
  if (vocab() == 0) fault("{}: the tokenizer has no tokens", fields.place());
}

int64_t TokenPipeline::vocab() const {
  return std::max(model_->tokens().end_id(), added_.end_id());
}

void TokenPipeline::normalize(AlignedText& text) const {
  for (const auto& normalizer : normalizers_) normalizer->apply(text);
}

void TokenPipeline::encode(std::string_view text, std::vector<int32_t>& out, const EncodeOptions& options) const {
  if (const size_t bad = find_bad_utf8(text); bad != std::string_view::npos) {
    fault("cannot encode a text that is not UTF-8 (byte {} is 0x{:02x}): convert it first", bad,
          static_cast<unsigned char>(text[bad]));
  }
  auto cache = caches_->borrow();
  const bool refuses_all = options.specials == Specials::none;
  const SpecialFilter filter{.refuses_all = refuses_all, .contents = options.contents, .offset = 0, .sources = {}};
  for (const AddedMatch& match : added_.split(text, filter)) {
    if (match.id >= 0) out.push_back(match.id);
    else encode_part(text, match.begin, match.end, options, *cache, out);
  }
  caches_->give_back(std::move(cache));
}

void TokenPipeline::encode_part(std::string_view text, size_t begin, size_t end, const EncodeOptions& options, WordCache& cache,
                                std::vector<int32_t>& out) const {
  const std::string_view part = text.substr(begin, end - begin);
  const size_t origin = begin == 0 && end > 0 ? bytes_of_character(text[0]) : 0;
  if (normalizers_.empty() && !added_.has_normalized()) return encode_words(part, origin, cache, out);
  AlignedText aligned{std::string(part), origin, {}};
  if (!options.contents.empty() && added_.has_normalized_special()) aligned.sources = own_sources(part, begin);
  normalize(aligned);
  const SpecialFilter filter{.refuses_all = options.specials == Specials::none,
                             .contents = added_.has_normalized_special() ? options.contents : std::span<const TextRange>(),
                             .offset = 0,
                             .sources = aligned.sources};
  for (const AddedMatch& match : added_.split_normalized(aligned.text, filter)) {
    if (match.id >= 0) {
      out.push_back(match.id);
    } else {
      const size_t left = aligned.origin > match.begin ? std::min(aligned.origin, match.end) - match.begin : 0;
      encode_words(std::string_view(aligned.text).substr(match.begin, match.end - match.begin), left, cache, out);
    }
  }
}

void TokenPipeline::encode_words(std::string_view text, size_t origin, WordCache& cache, std::vector<int32_t>& out) const {
  SplitText split(text, origin);
  for (const auto& step : pre_tokenizers_.steps) step->split(split);
  std::string buffer;
  for (const TextRange& word : split.words()) encode_word(split.text_of(word), cache, buffer, out);
}

void TokenPipeline::encode_word(std::string_view word, WordCache& cache, std::string& buffer, std::vector<int32_t>& out) const {
  if (model_->is_slow()) {
    if (const auto known = cache.find(word)) {
      out.insert(out.end(), known->begin(), known->end());
      return;
    }
  }
  std::string_view characters = word;
  if (pre_tokenizers_.leaves_bytes) {
    buffer.clear();
    append_byte_characters(buffer, word);
    characters = buffer;
  }
  const size_t begin = out.size();
  model_->tokenize(characters, out);
  if (model_->is_slow()) cache.add(word, std::span(out).subspan(begin));
}

std::optional<int64_t> TokenPipeline::id_of(std::string_view token) const {
  const auto id = added_.id_of(token);
  return id ? id : model_->tokens().id_of(token);
}

bool TokenPipeline::is_special(int64_t id) const {
  const AddedToken* token = added_.find(id);
  return token && added_.is_special(token->content);
}

std::string TokenPipeline::token_of(int64_t id) const {
  if (const AddedToken* token = added_.find(id)) return token->content;
  const std::string* token = model_->tokens().token_of(id);
  return token ? *token : "";
}

const std::string* TokenPipeline::decoded_token(int64_t id) const {
  const AddedToken* token = added_.find(id);
  return token ? &token->decoded : model_->tokens().token_of(id);
}

}  // namespace zt::data::huggingface
