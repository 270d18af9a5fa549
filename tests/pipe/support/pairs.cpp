#include "pipe/support/pairs.h"

#include <random>
#include <set>
#include <tuple>

namespace zt::test {

namespace {

using Pair = std::tuple<size_t, int, size_t, int>;  // two factors with their values

std::vector<Pair> pairs_of(const std::vector<int>& choice) {
  std::vector<Pair> pairs;
  for (size_t a = 0; a < choice.size(); ++a) {
    for (size_t b = a + 1; b < choice.size(); ++b) pairs.emplace_back(a, choice[a], b, choice[b]);
  }
  return pairs;
}

}  // namespace

std::vector<std::vector<int>> product(const std::vector<int>& levels) {
  std::vector<std::vector<int>> all{{}};
  for (const int count : levels) {
    std::vector<std::vector<int>> longer;
    for (const auto& choice : all) {
      for (int value = 0; value < count; ++value) {
        longer.push_back(choice);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// Of some random choices that contain a missing pair, takes the one with the most missing pairs, until none is missing.
std::vector<std::vector<int>> pairwise(const std::vector<int>& levels, unsigned seed) {
  constexpr int kTries = 30;
  std::mt19937 random(seed);
  std::set<Pair> missing;
  for (size_t a = 0; a < levels.size(); ++a) {
    for (size_t b = a + 1; b < levels.size(); ++b) {
      for (int x = 0; x < levels[a]; ++x) {
        for (int y = 0; y < levels[b]; ++y) missing.emplace(a, x, b, y);
      }
    }
  }
  std::vector<std::vector<int>> chosen;
  while (!missing.empty()) {
    const auto [a, x, b, y] = *missing.begin();
    std::vector<int> best;
    size_t most = 0;
    for (int i = 0; i < kTries; ++i) {
      std::vector<int> choice;
      for (const int count : levels) choice.push_back(static_cast<int>(random() % static_cast<unsigned>(count)));
      choice[a] = x;
      choice[b] = y;
      size_t found = 0;
      for (const Pair& pair : pairs_of(choice)) found += missing.count(pair);
      if (found <= most) continue;
      most = found;
      best = std::move(choice);
    }
    for (const Pair& pair : pairs_of(best)) missing.erase(pair);
    chosen.push_back(std::move(best));
  }
  return chosen;
}

}  // namespace zt::test
