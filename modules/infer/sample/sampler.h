// Draws the next token of a sequence from the logits of its last one.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zt::infer {

constexpr double kNeverDrawn = -std::numeric_limits<double>::infinity();  // the logit of a token without a probability

// How a token is drawn. The changes of logits and the cut-offs follow each other in this order, which is that of transformers.
struct SamplingOptions {
  double repetition_penalty = 1;              // divides logits above 0 of tokens in prompt and answer, multiplies those below
  double presence_penalty = 0;                // is subtracted from the logit of each token of the answer,
  double frequency_penalty = 0;               // and this for each time that it is there
  std::map<int32_t, double> logit_bias = {};  // is added, by token
  double temperature = 1;                     // divides all logits; 0: the likeliest token, without the cut-offs
  int64_t top_k = 0;                          // tokens whose logit is at least the top_k-th largest remain; 0: all
  double top_p = 1;                           // of these the likeliest, until their share is at least top_p
  double min_p = 0;                           // of these the ones with at least this share of the likeliest one's probability
};

// How often each token is in a sequence.
class TokenCounts {
 public:
  void add_prompt(std::span<const int32_t> tokens);
  void add_answer(int32_t token);

  // Applies the penalties to the logits of the tokens from `first` on.
  void penalise(std::span<double> logits, int64_t first, const SamplingOptions& options) const;

 private:
  struct Count {
    bool is_in_prompt = false;
    int64_t in_answer = 0;
  };
  std::unordered_map<int32_t, Count> counts_;
};

struct SampledToken {
  int32_t token = 0;           // -1: penalties, biases and forbidden tokens leave none that can be drawn
  double sampled_logprob = 0;  // of the distribution that it was drawn from
};

using Candidate = std::pair<double, int32_t>;  // a logit, later a weight, and its token

// Changes the logits of the tokens from `first` on as the options say. Forbidden tokens get that of a token that is never drawn.
void change_logits(std::span<double> logits, int64_t first, const SamplingOptions& options, const TokenCounts& counts,
                   std::span<const int32_t> forbidden);

// Has the memory for one row of logits. Threads: one at a time.
class Sampler {
 public:
  // Draws a token. `logits`: [vocabulary], none of them nan or the infinity above 0, and not all of them the one below.
  // `forbidden`: tokens that are not drawn. `uniform`: in [0, 1): of the tokens that remain, in
  // ascending order, the first one is drawn at which the sum of the probabilities is larger.
  SampledToken sample(std::span<const double> logits, const SamplingOptions& options, const TokenCounts& counts,
                      std::span<const int32_t> forbidden, double uniform);

  // Draws one of these tokens, ascending, whose logits are changed, after the cut-offs. `most`: the largest logit. `total`: the
  // sum of exp((logit - most) / temperature) over all tokens, if not all that top_k leaves are among the candidates; else
  // nullopt.
  SampledToken choose(std::vector<Candidate> candidates, double most, std::optional<double> total, const SamplingOptions& options,
                      double uniform);

  // Returns the tokens that remained in the last call, ascending. With temperature 0 all of them do.
  std::vector<int32_t> remaining() const;

 private:
  void keep_top_k(int64_t top_k);
  void keep_top_p(double top_p, std::optional<double> whole);

  std::vector<double> logits_;
  std::vector<Candidate> candidates_;  // by ascending token
  std::vector<Candidate> selection_;   // a copy, in the order in which it is searched
};

// The order of likeliest tokens.
inline bool is_likelier(const Candidate& a, const Candidate& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// Returns whether a token can be drawn from the logits: none is nan or the infinity above 0, and one is finite.
bool can_sample(std::span<const double> logits);

// Returns log(sum(exp(logits))), from which the log-probability of a token follows.
double log_sum_exp(std::span<const double> logits);

// Returns the `count` likeliest tokens, the likeliest first, those with equal logits in ascending order.
std::vector<int32_t> likeliest(std::span<const double> logits, int64_t count);

}  // namespace zt::infer
