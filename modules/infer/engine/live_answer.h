// An answer while it is made.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/request.h"
#include "sample/guesses.h"
#include "sample/sampler.h"
#include "sample/text_stream.h"
#include "schedule/schedule.h"

namespace zt::infer {

using TokenBytes = std::function<std::string(int32_t)>;  // what a token adds to a text

// The tokens that a step has drawn for one answer. If it could not draw any, `error` says why, and the answer ends.
struct DrawnTokens {
  std::vector<TokenLogprob> tokens = {};
  std::vector<double> prompt_logprobs = {};  // of the tokens after those that the step has computed
  std::string error = {};
};

// The text that a step has added to an answer.
struct TextPiece {
  int64_t request = 0, copy = 0;
  std::string text = {};
};

// One of the n answers of a request: what the scheduler sees of it, and all that the next token depends on. Every rank of a
// replica has the same.
class LiveAnswer {
 public:
  using Clock = std::chrono::steady_clock;

  // `stop_tokens`: those of the model. `bytes_of`: null without a tokenizer; outlives the answer.
  LiveAnswer(int64_t number, int64_t copy, std::shared_ptr<const Request> request, const std::vector<int32_t>& stop_tokens,
             const TokenBytes* bytes_of);

  TokenSequence sequence;  // its tokens are those of the prompt and of the answer

  const Request& request() const { return *request_; }
  int64_t number() const { return answer_.request; }
  int64_t copy() const { return answer_.copy; }
  int64_t length() const { return static_cast<int64_t>(answer_.tokens.size()); }
  const TokenCounts& counts() const { return counts_; }
  bool is_stop(int32_t token) const { return std::ranges::find(stop_tokens_, token) != stop_tokens_.end(); }
  // Returns the tokens that must not be token number `index` of the answer.
  std::span<const int32_t> forbidden(int64_t index) const {
    return index < request_->min_tokens ? std::span<const int32_t>(stop_tokens_) : std::span<const int32_t>();
  }
  // Returns guesses of the next tokens, as many as the answer may still have after the next one.
  std::vector<int32_t> guess(TokenGuesses& guesses) const;

  // Adds what a step has drawn. Returns the text that is complete now. The answer may be done then.
  std::string add(const DrawnTokens& drawn);
  void end(FinishReason reason, std::string error = {});
  bool is_done() const { return is_done_; }
  // Returns the whole answer, once it is done.
  Answer take() { return std::move(answer_); }
  // Returns how many log-probabilities of the prompt are known: of its tokens 1, 2, ...
  int64_t known_of_prompt() const { return answer_.prompt_logprobs ? std::ssize(*answer_.prompt_logprobs) : 0; }
  // Forgets the log-probabilities of the prompt: they are computed again.
  void forget_prompt();
  // Notes that its first step begins, or another one after it gave its blocks back. Returns the tokens of the prompt that are new
  // in the cache for it without having been computed.
  int64_t note_begin() {
    if (std::exchange(has_begun_, true)) return 0;
    return answer_.cached_tokens = sequence.computed;
  }

  std::optional<TokenGuesses> guesses;  // with speculative decoding

 private:
  void add_token(const TokenLogprob& token, std::string& text);
  double age() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  std::shared_ptr<const Request> request_;
  std::vector<int32_t> stop_tokens_;
  const TokenBytes* bytes_of_;
  TokenCounts counts_;
  StopTexts stops_;
  CharacterStream characters_;
  Answer answer_;
  bool is_done_ = false, has_begun_ = false;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace zt::infer
