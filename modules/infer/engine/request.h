// The requests to an engine, and their answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sample/sampler.h"
#include "zt/base/options.h"

namespace zt::infer {

struct Request : SamplingOptions {
  std::vector<int32_t> prompt = {};
  int64_t max_tokens = 128, min_tokens = 0;  // of the answer
  int64_t n = 1;                             // answers, each of which draws its own tokens
  int64_t seed = 1;
  std::vector<std::string> stop = {};                    // texts before which the answer ends
  std::optional<std::vector<int32_t>> stop_tokens = {};  // tokens after which it ends; nothing: the model's
  bool ignore_eos = false;                               // the model's tokens do not end it
  std::optional<int64_t> logprobs = {};                  // of each token of the answer, with so many of the likeliest ones
  bool prompt_logprobs = false;                          // of each token of the prompt after the first
  std::string salt = {};                                 // keys and values are shared with requests of the same salt only

  std::string path = "request";  // for messages
};

// Returns the request that a table describes. Its `prompt` is a list of tokens or an int64 tensor. Throws Misuse, with `path`,
// for what no model could do.
Request parse_request(const Value& table, const std::string& path);
// Returns a table from which every rank of a replica makes the same request: without tensors, and with `max_tokens`, by default
// as many as a context of `max_context` tokens leaves, but at most those of a Request.
Value plain_request(const Value& table, const std::string& path, int64_t max_context);

enum class FinishReason : uint8_t { stop, length, abort, error };
constexpr auto words_of(FinishReason) {
  return std::array{"stop", "length", "abort", "error"};
}

// A token and its log-probabilities: by the logits of the model, and of the distribution from which it was drawn, after
// penalties, temperature and cut-offs.
struct TokenLogprob {
  int32_t token = 0;
  double logprob = 0, sampled_logprob = 0;
  std::vector<std::pair<int32_t, double>> top = {};  // the likeliest tokens by the logits, with their log-probabilities
};

// One answer of a request. Plain data.
struct Answer {
  int64_t request = 0, copy = 0;     // the number that `submit` returned, and which of the n answers, from 0
  std::vector<int32_t> tokens = {};  // with the one that ended it
  std::string text = {};             // without the stop; empty without a tokenizer
  FinishReason reason = FinishReason::length;
  std::string stop = {};                                    // the text that ended it, if one did
  std::string error = {};                                   // why it could not be completed
  std::optional<std::vector<TokenLogprob>> logprobs = {};   // of the tokens, if they were wanted
  std::optional<std::vector<double>> prompt_logprobs = {};  // of the second token of the prompt and those after it, likewise
  int64_t cached_tokens = 0;              // tokens of the prompt whose keys and values another request had computed
  double first_seconds = 0, seconds = 0;  // from `submit` to the first token, and to the last one
};
Value to_value(const Answer& answer);

}  // namespace zt::infer
