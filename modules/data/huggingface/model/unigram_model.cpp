#include "huggingface/model/unigram_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "huggingface/model/byte_tokens.h"
#include "huggingface/text/byte_trie.h"
#include "huggingface/text/unicode.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

constexpr double kUnknownPenalty = 10;  // an unknown character scores this much less than the worst token

class UnigramModel : public SubwordModel {
 public:
  UnigramModel(TokenTable tokens, std::vector<double> scores, ByteTrie trie, std::optional<int32_t> unknown, bool has_byte_tokens)
      : SubwordModel(std::move(tokens)), scores_(std::move(scores)), trie_(std::move(trie)), unknown_(unknown) {
    const auto worst = std::min_element(scores_.begin(), scores_.end());
    unknown_score_ = (worst == scores_.end() ? std::numeric_limits<double>::infinity() : *worst) - kUnknownPenalty;
    if (has_byte_tokens) bytes_ = ByteTokens(this->tokens());
  }

  void tokenize(std::string_view word, std::vector<int32_t>& out) const override {
    const std::vector<Step> steps = best_steps(word);
    std::vector<Step> path;  // from the end to the start
    for (size_t end = word.size(); end > 0; end = steps[end].begin) {
      const Step& step = steps[end];
      const bool joins = step.token == unknown_ && !path.empty() && path.back().token == unknown_;
      if (joins) path.back().begin = step.begin;  // a run of unknown tokens is one
      else path.push_back({step.begin, step.token, 0});
    }
    for (size_t i = path.size(); i-- > 0;) {
      const size_t end = i == 0 ? word.size() : path[i - 1].begin;
      append_token(word.substr(path[i].begin, end - path[i].begin), path[i], out);
    }
  }

  size_t count() const override { return scores_.size(); }

 private:
  // The last token of the best way to an offset.
  struct Step {
    size_t begin = kUnreached;
    std::optional<int32_t> token;
    double score = 0;  // of the whole way
  };
  static constexpr size_t kUnreached = SIZE_MAX;

  // Returns the best steps by the offset at which they end.
  std::vector<Step> best_steps(std::string_view word) const {
    std::vector<Step> steps(word.size() + 1);
    for (size_t at = 0, size = 0; at < word.size(); at += size) {
      size = bytes_of_character(word[at]);
      const double before = steps[at].score;
      bool has_single = false;
      const auto offer = [&](size_t end, std::optional<int32_t> token, double score) {
        Step& step = steps[end];
        if (step.begin == kUnreached || score > step.score) step = {at, token, score};
      };
      trie_.visit_prefixes(word.substr(at), [&](size_t length, int32_t token) {
        offer(at + length, token, scores_[static_cast<size_t>(token)] + before);
        has_single |= length == size;
      });
      if (has_single) continue;
      if (!unknown_) {
        fault("cannot encode the character '{}': the tokenizer has no token for it, and no unknown token (unk_id)",
              word.substr(at, size));
      }
      offer(at + size, unknown_, unknown_score_ + before);
    }
    return steps;
  }

  void append_token(std::string_view part, const Step& step, std::vector<int32_t>& out) const {
    if (step.token != unknown_) return out.push_back(*step.token);
    if (const auto id = tokens().id_of(part)) return out.push_back(*id);
    if (!bytes_.has_all(part)) return out.push_back(*unknown_);
    for (const char byte : part) out.push_back(bytes_.id_of(byte));
  }

  std::vector<double> scores_;  // by id
  ByteTrie trie_;
  std::optional<int32_t> unknown_;
  double unknown_score_;
  ByteTokens bytes_;
};

}  // namespace

std::unique_ptr<SubwordModel> parse_unigram_model(const JsonFields& fields) {
  fields.allow_only({"type", "unk_id", "vocab", "byte_fallback"});
  const JsonValue& list = fields.list("vocab");
  const std::string place = fields.place_of("vocab");
  TokenTable tokens;
  std::vector<double> scores;
  std::vector<std::pair<std::string, int32_t>> strings;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonValue& entry = list[i];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      fault("{}[{}]: this must be a token and its score, such as [\"a\", -2.5]", place, i);
    }
    const int32_t id = id_from(JsonValue(i), place);
    tokens.add(entry[0].get<std::string>(), id);
    scores.push_back(entry[1].get<double>());
    strings.emplace_back(entry[0].get<std::string>(), id);
  }
  std::optional<int32_t> unknown;
  if (fields.has("unk_id")) {
    if (list.empty()) fault("{}: the vocabulary is empty, but unk_id names one of its tokens", place);
    unknown = static_cast<int32_t>(fields.integer("unk_id", 0, static_cast<int64_t>(list.size()) - 1));
  }
  return std::make_unique<UnigramModel>(std::move(tokens), std::move(scores), ByteTrie(std::move(strings)), unknown,
                                        fields.flag("byte_fallback", false));
}

}  // namespace zt::data::huggingface
