#include "routing/routes.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace zt::moe {

namespace {

// Returns whether the number at a comes before that at b in descending order. NaN counts as the least; ties go to the lower
// index.
bool comes_first(const double* numbers, int64_t a, int64_t b) {
  const double x = numbers[a], y = numbers[b];
  const bool has_x = x == x, has_y = y == y;
  if (has_x != has_y) return has_x;
  return has_x && x != y ? x > y : a < b;
}

// Finds the largest of many rows of numbers, with the same memory.
class Largest {
 public:
  // Returns the indices of the `count` largest numbers, the largest first. They are valid until the next call.
  std::span<const int64_t> of(std::span<const double> numbers, int64_t count) {
    places_.resize(numbers.size());
    std::iota(places_.begin(), places_.end(), int64_t{0});
    const auto is_larger = [&](int64_t a, int64_t b) { return comes_first(numbers.data(), a, b); };
    std::partial_sort(places_.begin(), places_.begin() + count, places_.end(), is_larger);
    return {places_.data(), static_cast<size_t>(count)};
  }

 private:
  std::vector<int64_t> places_;
};

// Limits tokens to the experts of their best groups. A group's score is the sum of its two largest scores.
class GroupLimit {
 public:
  GroupLimit(int64_t groups, int64_t top_groups) : top_groups_(top_groups), of_groups_(static_cast<size_t>(groups)) {}

  // Returns the scores, in which experts outside of the best groups have the least score. They are valid until the next call.
  std::span<const double> limited(std::span<const double> scores) {
    const size_t size = scores.size() / of_groups_.size();
    for (size_t group = 0; group < of_groups_.size(); ++group) of_groups_[group] = score(scores.subspan(group * size, size));
    scores_.assign(scores.size(), -std::numeric_limits<double>::infinity());
    for (const int64_t group : largest_.of(of_groups_, top_groups_)) {
      const size_t begin = static_cast<size_t>(group) * size;
      std::ranges::copy(scores.subspan(begin, size), scores_.begin() + static_cast<int64_t>(begin));
    }
    return scores_;
  }

 private:
  double score(std::span<const double> own) {
    double sum = 0;
    for (const int64_t place : largest_.of(own, std::min<int64_t>(2, static_cast<int64_t>(own.size()))))
      sum += own[static_cast<size_t>(place)];
    return sum;
  }

  int64_t top_groups_;
  std::vector<double> of_groups_, scores_;
  Largest largest_;
};

std::span<const double> row_of(const at::Tensor& doubles, int64_t row) {
  const auto width = static_cast<size_t>(doubles.size(1));
  return {doubles.const_data_ptr<double>() + static_cast<size_t>(row) * width, width};
}

// Returns whether the number of a token counts, as a function. An undefined tensor means that all do.
auto counts_in(const at::Tensor& tokens) {
  return [counted = tokens.defined() ? tokens.const_data_ptr<bool>() : nullptr](int64_t token) {
    return !counted || counted[token];
  };
}

}  // namespace

at::Tensor select_top_k(const at::Tensor& scores, const TopK& top_k) {
  const at::Tensor doubles = scores.to(at::kDouble).contiguous();
  at::Tensor selected = at::empty({scores.size(0), top_k.count}, at::kLong);
  auto* to = selected.mutable_data_ptr<int64_t>();
  const bool is_limited = top_k.top_groups < top_k.groups;
  GroupLimit limit(top_k.groups, top_k.top_groups);
  Largest largest;
  for (int64_t token = 0; token < scores.size(0); ++token) {
    const auto row = is_limited ? limit.limited(row_of(doubles, token)) : row_of(doubles, token);
    to = std::ranges::copy(largest.of(row, top_k.count), to).out;
  }
  return selected;
}

at::Tensor select_by_experts(const at::Tensor& scores, int64_t samples, int64_t room) {
  const at::Tensor by_expert = scores.to(at::kDouble).t().contiguous();  // [experts, tokens]
  const int64_t tokens = scores.size(0), experts = scores.size(1), per_sample = tokens / samples;
  at::Tensor selected = at::full({tokens, experts}, -1, at::kLong);
  auto* to = selected.mutable_data_ptr<int64_t>();
  Largest largest;
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (int64_t begin = 0; begin < tokens; begin += per_sample) {
      const auto sample = row_of(by_expert, expert).subspan(static_cast<size_t>(begin), static_cast<size_t>(per_sample));
      for (const int64_t token : largest.of(sample, std::min(room, per_sample))) to[(begin + token) * experts + expert] = expert;
    }
  }
  return selected;
}

at::Tensor balanced_routes(int64_t samples, const std::vector<Share>& places, int64_t routes, int64_t experts) {
  std::vector<at::Tensor> turns;
  for (const Share& range : places) turns.push_back(at::arange(range.begin * routes, range.end() * routes, at::kLong));
  return at::cat(turns).remainder(experts).view({-1, routes}).repeat({samples, 1});
}

int64_t drop_above(at::Tensor& experts, const Room& room) {
  const int64_t routes = experts.size(1), per_part = experts.size(0) / room.samples * routes;
  auto* expert_of = experts.mutable_data_ptr<int64_t>();
  const at::Tensor doubles = room.ranking.defined() ? room.ranking.to(at::kDouble).contiguous() : at::Tensor();
  const double* ranks = doubles.defined() ? doubles.const_data_ptr<double>() : nullptr;
  const auto counts = counts_in(room.counted);
  const auto comes_before = [&](int64_t a, int64_t b) {
    const bool counts_a = counts(a / routes), counts_b = counts(b / routes);
    if (counts_a != counts_b) return counts_a;
    if (ranks) return comes_first(ranks, a, b);
    if (room.is_by_choice && a % routes != b % routes) return a % routes < b % routes;
    return a < b;
  };
  int64_t dropped = 0;
  for (int64_t begin = 0; begin < experts.numel(); begin += per_part) {
    std::vector<std::vector<int64_t>> pairs(static_cast<size_t>(room.experts));
    for (int64_t pair = begin; pair < begin + per_part; ++pair) {
      if (expert_of[pair] >= 0) pairs[static_cast<size_t>(expert_of[pair])].push_back(pair);
    }
    for (auto& own : pairs) {
      if (static_cast<int64_t>(own.size()) <= room.rows) continue;
      std::ranges::sort(own, comes_before);
      for (auto pair = own.begin() + room.rows; pair != own.end(); ++pair) {
        expert_of[*pair] = -1;
        dropped += counts(*pair / routes) ? 1 : 0;
      }
    }
  }
  return dropped;
}

at::Tensor load_by_sample(const at::Tensor& experts, int64_t samples, int64_t count, const at::Tensor& counted) {
  at::Tensor load = at::zeros({samples, count}, at::kDouble);
  auto* to = load.mutable_data_ptr<double>();
  const auto* expert_of = experts.const_data_ptr<int64_t>();
  const int64_t per_sample = samples == 0 ? 1 : experts.numel() / samples, routes = experts.size(1);
  const auto counts = counts_in(counted);
  for (int64_t pair = 0; pair < experts.numel(); ++pair) {
    if (expert_of[pair] >= 0 && counts(pair / routes)) to[pair / per_sample * count + expert_of[pair]] += 1;
  }
  return load;
}

}  // namespace zt::moe
