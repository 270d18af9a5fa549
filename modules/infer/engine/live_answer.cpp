#include "engine/live_answer.h"

#include <algorithm>

namespace zt::infer {

LiveAnswer::LiveAnswer(int64_t number, int64_t copy, std::shared_ptr<const Request> request,
                       const std::vector<int32_t>& stop_tokens, const TokenBytes* bytes_of)
    : request_(std::move(request)), bytes_of_(bytes_of), stops_(request_->stop) {
  if (request_->stop_tokens) stop_tokens_ = *request_->stop_tokens;
  else if (!request_->ignore_eos) stop_tokens_ = stop_tokens;
  sequence.tokens = request_->prompt;
  sequence.root.salt = request_->salt;
  counts_.add_prompt(request_->prompt);
  answer_.request = number;
  answer_.copy = copy;
  if (request_->logprobs) answer_.logprobs.emplace();
  forget_prompt();
}

void LiveAnswer::forget_prompt() {
  if (!request_->prompt_logprobs || copy() > 0) return;
  answer_.prompt_logprobs.emplace();
  sequence.needs_all_logits = request_->prompt.size() > 1;
}

std::vector<int32_t> LiveAnswer::guess(TokenGuesses& guesses) const {
  std::vector<int32_t> guessed = guesses.after(sequence.tokens);
  const auto most = static_cast<size_t>(std::max<int64_t>(request_->max_tokens - length() - 1, 0));
  if (guessed.size() > most) guessed.resize(most);
  return guessed;
}

void LiveAnswer::end(FinishReason reason, std::string error) {
  answer_.reason = reason;
  answer_.error = std::move(error);
  answer_.seconds = age();
  is_done_ = true;
}

void LiveAnswer::add_token(const TokenLogprob& token, std::string& text) {
  if (answer_.tokens.empty()) answer_.first_seconds = age();
  answer_.tokens.push_back(token.token);
  if (answer_.logprobs) answer_.logprobs->push_back(token);
  sequence.tokens.push_back(token.token);
  counts_.add_answer(token.token);
  const bool may_stop = length() >= request_->min_tokens;
  if (may_stop && is_stop(token.token)) return end(FinishReason::stop);
  if (bytes_of_) {
    const std::string bytes = (*bytes_of_)(token.token);
    text += characters_.add(may_stop ? stops_.add(bytes) : bytes);
    if (stops_.found()) {
      answer_.stop = *stops_.found();
      return end(FinishReason::stop);
    }
  }
  if (length() == request_->max_tokens) end(FinishReason::length);
}

std::string LiveAnswer::add(const DrawnTokens& drawn) {
  std::string text;
  if (auto& known = answer_.prompt_logprobs)
    known->insert(known->end(), drawn.prompt_logprobs.begin(), drawn.prompt_logprobs.end());
  if (known_of_prompt() + 1 == std::ssize(request_->prompt)) sequence.needs_all_logits = false;
  for (const TokenLogprob& token : drawn.tokens) {
    if (!is_done_) add_token(token, text);
  }
  if (!drawn.error.empty()) end(FinishReason::error, drawn.error);
  if (is_done_ && !stops_.found()) text += characters_.add(stops_.finish());
  if (is_done_) text += characters_.finish();
  answer_.text += text;
  return text;
}

}  // namespace zt::infer
