#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace zt::infer {

void TokenCounts::add_prompt(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) counts_[token].is_in_prompt = true;
}

void TokenCounts::add_answer(int32_t token) {
  ++counts_[token].in_answer;
}

void TokenCounts::penalise(std::span<double> logits, int64_t first, const SamplingOptions& options) const {
  const bool has_penalties = options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0;
  if (!has_penalties) return;
  for (const auto& [token, count] : counts_) {
    if (token < first || token >= first + std::ssize(logits)) continue;
    double& logit = logits[static_cast<size_t>(token - first)];
    logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
    if (count.in_answer > 0) logit -= options.presence_penalty + options.frequency_penalty * static_cast<double>(count.in_answer);
  }
}

void change_logits(std::span<double> logits, int64_t first, const SamplingOptions& options, const TokenCounts& counts,
                   std::span<const int32_t> forbidden) {
  const auto has = [&](int64_t token) { return token >= first && token < first + std::ssize(logits); };
  counts.penalise(logits, first, options);
  for (const auto& [token, bias] : options.logit_bias) {
    if (has(token)) logits[static_cast<size_t>(token - first)] += bias;
  }
  for (const int32_t token : forbidden) {
    if (has(token)) logits[static_cast<size_t>(token - first)] = kNeverDrawn;
  }
}

// Tokens whose logit is equal to the last one's remain, too.
void Sampler::keep_top_k(int64_t top_k) {
  if (top_k == 0 || top_k >= std::ssize(candidates_)) return;
  selection_ = candidates_;
  const auto last = selection_.begin() + (top_k - 1);
  std::ranges::nth_element(selection_, last, is_likelier);
  const double least = last->first;
  std::erase_if(candidates_, [least](const Candidate& candidate) { return candidate.first < least; });
}

// Sorts only those candidates among which the last one is that remains. Candidates have weights by now.
void Sampler::keep_top_p(double top_p, std::optional<double> whole) {
  constexpr std::ptrdiff_t kSorted = 64;
  if (top_p >= 1) return;
  const auto add = [](double sum, const Candidate& candidate) { return sum + candidate.first; };
  const double least = top_p * (whole ? *whole : std::accumulate(candidates_.begin(), candidates_.end(), 0.0, add));
  selection_ = candidates_;
  auto begin = selection_.begin(), end = selection_.end();
  double before = 0;  // the sum of those before `begin`, which are likelier than those from there on
  while (end - begin > kSorted) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, is_likelier);
    const double half = std::accumulate(begin, middle, before, add);
    if (half < least) {
      before = half;
      begin = middle;
    } else {
      end = middle;
    }
  }
  std::sort(begin, end, is_likelier);
  while (end - begin > 1 && (before += begin->first) < least) ++begin;
  const Candidate last = *begin;
  std::erase_if(candidates_, [&](const Candidate& candidate) { return is_likelier(last, candidate); });
}

SampledToken Sampler::sample(std::span<const double> logits, const SamplingOptions& options, const TokenCounts& counts,
                             std::span<const int32_t> forbidden, double uniform) {
  logits_.assign(logits.begin(), logits.end());
  change_logits(logits_, 0, options, counts, forbidden);
  candidates_.clear();
  if (!can_sample(logits_)) return {-1, 0};
  const auto largest = std::ranges::max_element(logits_);
  if (options.temperature == 0) return {static_cast<int32_t>(largest - logits_.begin()), 0};
  for (size_t token = 0; token < logits_.size(); ++token) {
    if (logits_[token] != kNeverDrawn) candidates_.emplace_back(logits_[token], static_cast<int32_t>(token));
  }
  return choose(std::move(candidates_), *largest, {}, options, uniform);
}

SampledToken Sampler::choose(std::vector<Candidate> candidates, double most, std::optional<double> total_of_all,
                             const SamplingOptions& options, double uniform) {
  candidates_ = std::move(candidates);
  keep_top_k(options.top_k);
  for (Candidate& candidate : candidates_) candidate.first = std::exp((candidate.first - most) / options.temperature);
  keep_top_p(options.top_p, total_of_all);
  std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.first < options.min_p; });
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.first;
  double sum = 0;
  const Candidate* drawn = nullptr;
  for (const Candidate& candidate : candidates_) {
    if (candidate.first > 0) drawn = &candidate;  // the last one, where rounding leaves nothing
    sum += candidate.first;
    if (sum > uniform * total) break;
  }
  return {drawn->second, std::log(drawn->first / total)};
}

std::vector<int32_t> Sampler::remaining() const {
  std::vector<int32_t> tokens;
  if (candidates_.empty()) {
    tokens.resize(logits_.size());
    std::iota(tokens.begin(), tokens.end(), 0);
  }
  for (const Candidate& candidate : candidates_) tokens.push_back(candidate.second);
  return tokens;
}

bool can_sample(std::span<const double> logits) {
  double largest = kNeverDrawn;
  for (const double logit : logits) {
    if (std::isnan(logit)) return false;
    largest = std::max(largest, logit);
  }
  return std::isfinite(largest);
}

double log_sum_exp(std::span<const double> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

std::vector<int32_t> likeliest(std::span<const double> logits, int64_t count) {
  std::vector<int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto end = tokens.begin() + std::min<int64_t>(count, std::ssize(tokens));
  std::ranges::partial_sort(tokens, end, [&](int32_t a, int32_t b) {
    const double x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  tokens.erase(end, tokens.end());
  return tokens;
}

}  // namespace zt::infer
