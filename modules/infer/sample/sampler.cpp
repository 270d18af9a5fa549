#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace zt::infer {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// The order of likeliest tokens.
bool is_likelier(const std::pair<double, int32_t>& a, const std::pair<double, int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

}  // namespace

void TokenCounts::add_prompt(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) counts_[token].is_in_prompt = true;
}

void TokenCounts::add_answer(int32_t token) {
  ++counts_[token].in_answer;
}

void Sampler::change(const SamplingOptions& options, const TokenCounts& counts, std::span<const int32_t> forbidden) {
  const bool has_penalties = options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0;
  if (has_penalties) {
    for (const auto& [token, count] : counts.counts_) {
      double& logit = logits_[static_cast<size_t>(token)];
      logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
      if (count.in_answer > 0)
        logit -= options.presence_penalty + options.frequency_penalty * static_cast<double>(count.in_answer);
    }
  }
  for (const auto& [token, bias] : options.logit_bias) logits_[static_cast<size_t>(token)] += bias;
  for (const int32_t token : forbidden) logits_[static_cast<size_t>(token)] = kNever;
}

// Tokens whose logit is equal to the last one's remain, too.
void Sampler::keep_top_k(int64_t top_k) {
  if (top_k == 0 || top_k >= std::ssize(candidates_)) return;
  const auto last = candidates_.begin() + (top_k - 1);
  std::ranges::nth_element(candidates_, last, is_likelier);
  const double least = last->first;
  std::erase_if(candidates_, [least](const Candidate& candidate) { return candidate.first < least; });
}

// Sorts no more candidates than it has to. They have weights by now.
void Sampler::keep_top_p(double top_p) {
  if (top_p >= 1) return;
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.first;
  double sum = 0;
  auto kept = candidates_.begin(), sorted = candidates_.begin();
  for (std::ptrdiff_t part = 64; sum < top_p * total && kept != candidates_.end(); part *= 8) {
    const auto begin = sorted;
    sorted = std::min(part, candidates_.end() - begin) + begin;
    std::ranges::nth_element(begin, sorted, candidates_.end(), is_likelier);
    std::ranges::sort(begin, sorted, is_likelier);
    for (; kept != sorted && sum < top_p * total; ++kept) sum += kept->first;
  }
  candidates_.erase(kept, candidates_.end());
}

SampledToken Sampler::sample(std::span<const double> logits, const SamplingOptions& options, const TokenCounts& counts,
                             std::span<const int32_t> forbidden, double uniform) {
  logits_.assign(logits.begin(), logits.end());
  change(options, counts, forbidden);
  const auto largest = std::ranges::max_element(logits_);
  if (options.temperature == 0) {
    candidates_.clear();
    return {static_cast<int32_t>(largest - logits_.begin()), 0};
  }
  candidates_.clear();
  for (size_t token = 0; token < logits_.size(); ++token) {
    if (logits_[token] != kNever) candidates_.emplace_back(logits_[token], static_cast<int32_t>(token));
  }
  const double most = *largest;
  keep_top_k(options.top_k);
  for (Candidate& candidate : candidates_) candidate.first = std::exp((candidate.first - most) / options.temperature);
  keep_top_p(options.top_p);
  std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.first < options.min_p; });
  std::ranges::sort(candidates_, {}, &Candidate::second);
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
  double largest = kNever;
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
